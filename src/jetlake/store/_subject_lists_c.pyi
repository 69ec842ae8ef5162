from jetlake.store._subject_lists_py import *
