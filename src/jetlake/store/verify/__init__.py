"""Check every byte of a store without changing it."""
