"""JetLake: a JetStream server in Python whose streams are Spark tables."""

__version__ = "0.1.0"
