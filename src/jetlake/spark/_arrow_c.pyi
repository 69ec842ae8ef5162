from jetlake.spark._arrow_py import *
