from jetlake.jetstream.streams._gets_py import *
