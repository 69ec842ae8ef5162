"""Streams and consumers as state machines, and the API that manages them."""
