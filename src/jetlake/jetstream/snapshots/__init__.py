"""Streams that come from elsewhere or go there: snapshots, restores, imports of a nats-server's store, backups."""
