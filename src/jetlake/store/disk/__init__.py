"""What happens to files: commits, recovery, rewriting, conversion."""
