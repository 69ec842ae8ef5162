from jetlake.store.index._subject_table_py import *
