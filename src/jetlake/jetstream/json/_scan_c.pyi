from jetlake.jetstream.json._scan_py import *
