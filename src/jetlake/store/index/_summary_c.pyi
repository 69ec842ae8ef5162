from jetlake.store.index._summary_py import *
