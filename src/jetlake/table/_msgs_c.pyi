from jetlake.table._msgs_py import *
