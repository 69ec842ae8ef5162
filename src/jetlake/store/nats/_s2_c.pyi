from jetlake.store.nats._s2_py import *
