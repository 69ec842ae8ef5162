"""The store directory of nats-server at rest: what its files say, and writing its blocks."""
