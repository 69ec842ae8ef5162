from jetlake.store._record_py import *
