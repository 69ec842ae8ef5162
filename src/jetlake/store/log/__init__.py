"""Logs: files of records that are only ever appended to, and read from the beginning after a crash."""
