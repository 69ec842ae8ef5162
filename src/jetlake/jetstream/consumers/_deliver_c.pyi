from jetlake.jetstream.consumers._deliver_py import *
