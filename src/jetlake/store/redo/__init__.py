"""The redo log of a server: one sync for all files that change together."""
