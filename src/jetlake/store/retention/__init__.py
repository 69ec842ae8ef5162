"""How messages leave a stream."""
