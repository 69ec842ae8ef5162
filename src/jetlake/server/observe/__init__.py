"""What a running server shows of itself, in nats-server's shapes: one module for each page of the monitoring port.

A page is a function of the server and a `Query` that returns what becomes JSON, with what may be long in it as
`page.items`; the monitoring port and the services of the system account ask the same ones. Keys that only a cluster has
are left out, or empty where nats-server has them so.
"""
