from jetlake.store.records._scan_py import *
