"""The server: sockets, threads, timers and signals around the broker and JetStream. The only asyncio."""
