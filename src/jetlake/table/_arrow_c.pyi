from jetlake.table._arrow_py import *
