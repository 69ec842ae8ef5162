"""Who is connected, who listens to what, and who may: core NATS without sockets."""
