from jetlake.store._subject_scan_py import *
