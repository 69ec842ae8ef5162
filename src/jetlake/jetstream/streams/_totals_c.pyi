from jetlake.jetstream.streams._totals_py import *
