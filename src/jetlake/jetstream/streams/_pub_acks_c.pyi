from jetlake.jetstream.streams._pub_acks_py import *
