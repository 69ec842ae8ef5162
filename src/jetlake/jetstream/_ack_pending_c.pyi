from jetlake.jetstream._ack_pending_py import *
