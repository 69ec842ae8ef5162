from jetlake.jetstream.consumers._ack_pending_py import *
