from jetlake.store._summary_py import *
