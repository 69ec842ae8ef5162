"""Consumers: what is delivered to whom, and what was acknowledged."""
