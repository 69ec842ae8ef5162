from jetlake.jetstream._msg_ids_py import *
