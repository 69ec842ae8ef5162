"""Bulk work on streams as Spark jobs: library functions, and what the commands of the same names do."""
