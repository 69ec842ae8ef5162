"""Block files, the files beside them, and what is known of a block in memory."""
