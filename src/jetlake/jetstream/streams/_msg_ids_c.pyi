from jetlake.jetstream.streams._msg_ids_py import *
