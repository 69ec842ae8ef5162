"""JSON of requests, read by a kernel and checked against a shape."""
