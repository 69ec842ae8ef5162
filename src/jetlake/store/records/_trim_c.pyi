from jetlake.store.records._trim_py import *
