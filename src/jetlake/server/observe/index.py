"""/: the list of pages, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake import __version__

if TYPE_CHECKING:
    from jetlake.server.server import Server

_PAGES = {
    "varz": "General",
    "jsz": "JetStream",
    "connz": "Connections",
    "routez": "Routes",
    "accountz": "Accounts",
    "accstatz": "Account Stats",
    "subsz": "Subscriptions",
    "healthz": "Health Probe",
    "metrics": "Metrics for Prometheus",
}


def index(server: Server) -> bytes:
    """The page."""
    from html import escape  # whose table of entities takes its time

    links = "\n".join(f'<li><a href="./{path}">{name}</a> <code>/{path}</code></li>' for path, name in _PAGES.items())
    name = escape(server.server_name)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><title>JetLake {name}</title></head>\n<body>\n'
        f"<h1>JetLake {__version__}</h1>\n<p>{name}, as nats-server {server.broker.version}</p>\n"
        f"<ul>\n{links}\n</ul>\n</body>\n</html>\n"
    ).encode()
