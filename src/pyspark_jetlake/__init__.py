"""Spark finds packages of this kind of name by itself: `format("jetstream")` works wherever JetLake is installed."""

from jetlake.spark.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
