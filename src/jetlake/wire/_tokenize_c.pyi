from jetlake.wire._tokenize_py import *
