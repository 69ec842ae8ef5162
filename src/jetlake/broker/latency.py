"""How long a service takes, told to a subject of the account that exports it.

A request is measured if the sampling of the export says so, or if its headers do (Jaeger, Zipkin, W3C trace context).
Time is told in parts: `service` is how long the responder took, `system` how long the server, and each side has its
round trip. A request that gets no answer is told of, too:

    400   it wants no answer
    408   who asked is gone
    503   nobody answers
    504   nobody answered in time

Answers that come over a link are not told: where the responder is, nobody knows how far away it is.
"""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING, Any

from jetlake.broker.peer import Kind, Peer
from jetlake.clock import Clock
from jetlake.config import Latency
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import iter_headers
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.account import Account, Watch

TYPE = "io.nats.server.metric.v1.service_latency"
BAD_REQUEST, REQUESTER_GONE, UNAVAILABLE, TIMEOUT = 400, 408, 503, 504
_TEXTS = {
    BAD_REQUEST: "Bad Request",
    REQUESTER_GONE: "Request Timeout",
    UNAVAILABLE: "Service Unavailable",
    TIMEOUT: "Service Timeout",
}
_ID_DIGITS = string.digits + string.ascii_letters
_UBER, _UBER_PREFIX = "Uber-Trace-Id", "Uberctx-"
_B3_SAMPLED, _B3_ID, _B3 = "X-B3-Sampled", "X-B3-Traceid", "B3"
_B3_NAMES = (_B3_SAMPLED, _B3_ID, "X-B3-Parentspanid", "X-B3-Spanid")
_CONTEXT, _CONTEXT_STATE = "Traceparent", "Tracestate"

Headers = dict[str, list[str]]


def should_measure(latency: Latency, headers: bytes) -> tuple[bool, Headers]:
    """Whether to measure a request, and the headers that ask for it."""
    if latency.sampling >= 100 or (latency.sampling > 0 and random.randrange(100) <= latency.sampling):
        return True, {}
    return _asked(_canonical(headers)) if headers else (False, {})


def _canonical(block: bytes) -> Headers:
    """The headers under the names that Go gives them: Traceparent, X-B3-Sampled."""
    found: Headers = {}
    for name, value in iter_headers(block):
        key = "-".join(part.capitalize() for part in name.decode("latin-1").split("-"))
        found.setdefault(key, []).append(value.strip(b" \t").decode("utf-8", "replace"))
    return found


def _asked(found: Headers) -> tuple[bool, Headers]:
    """Whether headers ask for a measurement. Of several systems the first one that is there decides."""
    if _UBER in found:
        parts = found[_UBER][0].split(":")
        is_asked = len(parts) == 4 and 1 <= len(parts[3]) <= 2 and _has_flag("0" + parts[3][:1], 8)
        more = {name: values for name, values in found.items() if name.startswith(_UBER_PREFIX)}
        return is_asked, {_UBER: found[_UBER], **more} if is_asked else {}
    sampled = found.get(_B3_SAMPLED, [""])[0]
    if sampled == "0":
        return False, {}
    if sampled == "1" or _B3_ID in found:
        return True, {name: found[name] for name in _B3_NAMES if name in found}
    if _B3 in found:
        parts = found[_B3][0].split("-")
        is_denied = parts == ["0"] or parts[2:3] == ["0"]
        return not is_denied, {} if is_denied else {_B3: found[_B3]}
    parts = found.get(_CONTEXT, [""])[0].split("-")
    if len(parts) == 4 and len(parts[3]) == 2 and _has_flag(parts[3], 7):
        return True, {name: found[name] for name in (_CONTEXT, _CONTEXT_STATE) if name in found}
    return False, {}


def _has_flag(text: str, bits: int) -> bool:
    try:
        number = int(text, 16)
    except ValueError:
        return False
    return 0 <= number < 1 << bits and bool(number & 1)


class Measurement:
    """One request that is measured, until it is told of."""

    __slots__ = ("_account", "_clock", "_headers", "_latency", "_requester", "_share", "_since_ns", "watch")

    def __init__(
        self, account: Account, latency: Latency, clock: Clock, requester: Peer, share: bool, headers: Headers
    ) -> None:
        """`account` exports the service."""
        self._account, self._latency, self._clock = account, latency, clock
        self._requester, self._share, self._headers = requester, share, headers
        self._since_ns = clock()
        self.watch: Watch | None = None  # who sees that nobody waits any more

    def answered(self, responder: Peer) -> None:
        """The answer is here. One that came over a link is not told of."""
        if responder.kind is not Kind.CLIENT:
            return
        requested_ns, now_ns = self._clock() - self._since_ns, self._clock()
        requester, answerer = self._describe_requester(), responder.describe()
        system_ns = self._clock() - now_ns
        service_ns = max(requested_ns - answerer.get("rtt", 0), 0)
        total_ns = requester.get("rtt", 0) + requested_ns + system_ns
        self._tell({"status": 200, "requestor": requester, "responder": answerer}, service_ns, system_ns, total_ns)

    def failed(self, status: int) -> None:
        """There will be no answer."""
        self._tell({"status": status, "description": _TEXTS[status], "requestor": self._describe_requester()}, 0, 0, 0)

    def _describe_requester(self) -> dict[str, Any]:
        info = self._requester.describe()
        return info if self._share else {name: info[name] for name in ("acc", "rtt") if name in info}

    def _tell(self, fields: dict[str, Any], service_ns: int, system_ns: int, total_ns: int) -> None:
        head = {"type": TYPE, "id": "".join(random.choices(_ID_DIGITS, k=22)), "timestamp": format_time(self._clock())}
        if self._headers:
            fields["header"] = dict(sorted(self._headers.items()))
        start_ns = self._since_ns - fields["requestor"].get("rtt", 0)
        times = {"start": format_time(start_ns), "service": service_ns, "system": system_ns, "total": total_ns}
        self._account.send(self._latency.subject.encode(), encode_json(head | fields | times))
