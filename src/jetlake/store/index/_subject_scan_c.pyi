from jetlake.store.index._subject_scan_py import *
