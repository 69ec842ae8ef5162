from jetlake.wire._link_tokenize_py import *
