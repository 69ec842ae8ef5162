from jetlake.store._encode_py import *
