from jetlake.jetstream._deliver_py import *
