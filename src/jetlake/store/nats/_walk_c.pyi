from jetlake.store.nats._walk_py import *
