from jetlake.store.records._encode_py import *
