from jetlake.jetstream._gets_py import *
