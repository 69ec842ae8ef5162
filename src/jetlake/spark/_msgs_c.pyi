from jetlake.spark._msgs_py import *
