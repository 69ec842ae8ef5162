from jetlake.spark._rows_py import *
