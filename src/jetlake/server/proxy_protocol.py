"""The PROXY protocol: a line or a block, ahead of everything else, in which a proxy tells whom it stands for.

Version 1 is a line of text, version 2 binary:

    PROXY TCP4 9.8.7.6 10.0.0.1 5555 4222\\r\\n        (also TCP6; with UNKNOWN nothing is told)
    0d0a0d0a000d0a515549540a | version and command | family | size, 2 bytes | addresses, then whatever else

`parse` takes the first bytes that a peer sent: it returns a Header, None when more bytes are needed, or raises
BadHeader. Bytes that begin otherwise are no header: the peer speaks for itself.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from jetlake.errors import JetLakeError

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
LINE_START = b"PROXY "
LINE_SIZE_MAX = 107  # with its end
BLOCK_SIZE_MAX = 16 + 2048  # nobody needs more
_FIXED_SIZE = 16
_LOCAL, _PROXY = 0x20, 0x21
_ADDRESS_SIZES = {0x11: 4, 0x21: 16}  # TCP over IPv4 and IPv6


class BadHeader(JetLakeError):
    """A header that begins well and goes wrong."""


class Header(NamedTuple):
    """How many bytes it has, and whom it tells of; no host: the proxy itself."""

    size: int
    host: str = ""
    port: int = 0


NO_HEADER = Header(0)


def parse(data: bytes) -> Header | None:
    """What the first bytes of a connection tell. Raises BadHeader."""
    for start, read in ((LINE_START, _parse_line), (SIGNATURE, _parse_block)):
        if data.startswith(start):
            return read(data)
        if data and start.startswith(data):
            return None
    return NO_HEADER


def _parse_line(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, LINE_SIZE_MAX)
    if end < 0:
        if len(data) >= LINE_SIZE_MAX:
            raise BadHeader(f"a line of more than {LINE_SIZE_MAX} bytes")
        return None
    match data[:end].decode("ascii", "replace").split(" "):
        case ["PROXY", "UNKNOWN", *_]:
            return Header(end + 2)
        case ["PROXY", "TCP4" | "TCP6" as family, host, _, port, _]:
            return Header(end + 2, _host(host, 4 if family == "TCP4" else 6), _port(port))
    raise BadHeader("a line that does not say whom it stands for")


def _parse_block(data: bytes) -> Header | None:
    if len(data) < _FIXED_SIZE:
        return None
    command, family, size = data[12], data[13], int.from_bytes(data[14:16], "big")
    if command not in (_LOCAL, _PROXY):
        raise BadHeader(f"version and command 0x{command:02x}")
    if _FIXED_SIZE + size > BLOCK_SIZE_MAX:
        raise BadHeader(f"a block of {size} bytes")
    if len(data) < _FIXED_SIZE + size:
        return None
    width = _ADDRESS_SIZES.get(family)
    if command == _LOCAL or width is None:
        return Header(_FIXED_SIZE + size)
    if size < 2 * width + 4:
        raise BadHeader(f"a block of {size} bytes for two addresses of {width}")
    host = socket.inet_ntop(socket.AF_INET if width == 4 else socket.AF_INET6, data[16 : 16 + width])
    return Header(_FIXED_SIZE + size, host, int.from_bytes(data[16 + 2 * width : 18 + 2 * width], "big"))


def _host(text: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise BadHeader("an address that is none") from None
    if address.version != version:
        raise BadHeader("an address of another family")
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise BadHeader("a port that is none")
    return int(text)
