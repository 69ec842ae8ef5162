from jetlake.jetstream.streams._members_py import *
