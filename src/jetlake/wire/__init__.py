"""The NATS client protocol without I/O: bytes in, operations and events out; and the bytes of every answer.

`tokenize` walks the publishes of a received buffer and stops in front of any other line, which `verbs` parses.
`protocol` holds what both share, `writer` the frames that a server sends, `headers` the header block of a message.
"""
