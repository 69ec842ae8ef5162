from jetlake.store._ranges_py import *
