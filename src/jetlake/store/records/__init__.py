"""One record: its bytes, encoded, measured, found in a block and counted."""
