from jetlake.store.records._record_py import *
