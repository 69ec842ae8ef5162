"""Streams: what is stored, by which rules, and who is told."""
