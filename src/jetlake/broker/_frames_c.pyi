from jetlake.broker._frames_py import *
