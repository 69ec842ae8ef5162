from jetlake.store._scan_py import *
