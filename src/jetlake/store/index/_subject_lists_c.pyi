from jetlake.store.index._subject_lists_py import *
