from jetlake.store._subject_table_py import *
