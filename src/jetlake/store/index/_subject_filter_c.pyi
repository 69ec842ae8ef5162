from jetlake.store.index._subject_filter_py import *
