from jetlake.jetstream.sourcing._deliveries_py import read_frames as read_frames
from jetlake.jetstream.sourcing._deliveries_py import read_run as read_run
from jetlake.jetstream.sourcing._deliveries_py import read_stream as read_stream
