from jetlake.table._nats_py import *
