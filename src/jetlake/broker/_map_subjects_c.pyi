from jetlake.broker._map_subjects_py import *
