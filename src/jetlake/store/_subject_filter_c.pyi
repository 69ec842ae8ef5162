from jetlake.store._subject_filter_py import *
