from jetlake.broker._routes_py import *
