from jetlake.store.nats._archive_py import *
