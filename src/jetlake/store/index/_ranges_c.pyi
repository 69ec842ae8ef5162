from jetlake.store.index._ranges_py import *
