from jetlake.store._trim_py import *
