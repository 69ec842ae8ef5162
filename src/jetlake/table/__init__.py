"""Streams as tables of Arrow columns: which messages are wanted, where they lie, and how they are decoded.

`jetlake.spark` reads streams through this package, and so does `jetlake.scan` without Spark. Nothing here needs Spark.
"""
