from jetlake.jetstream._json_scan_py import *
