"""Several servers, one JetStream: groups that agree on a log, and what the log is of."""
