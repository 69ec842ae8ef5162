"""A request to the JetStream API, and the table that says who handles which.

An Endpoint is a row: a subject pattern after `$JS.API.` (or `$JETLAKE.API.`), the type of its response, and a handler.
The handler answers with `Request.reply`, at once or, when something has to become durable first, later; or it raises
ApiError.

    ENDPOINTS = [Endpoint("STREAM.DELETE.*", "stream_delete_response", delete_stream)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jetlake.errors import BadRequest, StoreError
from jetlake.jetstream import errors
from jetlake.jetstream.clustering import AnsweredBy
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.json.shape import Struct, read_request
from jetlake.subjects import decode_subject
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.subscription import Msg
    from jetlake.jetstream.api.dispatch import Api
    from jetlake.jetstream.host import Host
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.streams.stream import Stream

_TYPE = "io.nats.jetstream.api.v1."

Handler = Callable[["Request"], None]


class Endpoint(NamedTuple):
    """One row of the table."""

    pattern: str
    type: str
    handler: Handler
    blank: Mapping[str, Any] = {}  # what stands beside an error: the fields that a response has even when empty
    is_for_clusters: bool = False  # refused before anything else is looked at, by a server that is alone
    answered_by: AnsweredBy = AnsweredBy.STREAM_LEADER  # in a cluster
    is_secret: bool = False  # not counted, since what is counted is audited with its payload


class Request:
    """One request, until it is answered."""

    __slots__ = ("_api", "endpoint", "msg", "names")

    def __init__(self, api: Api, endpoint: Endpoint, msg: Msg, names: tuple[str, ...]) -> None:
        self._api, self.endpoint, self.msg = api, endpoint, msg
        self.names = names  # what the wildcards of the pattern stand for; what `>` stands for is one of them

    @property
    def payload(self) -> bytes:
        return self.msg.payload

    @property
    def host(self) -> Host:
        return self._api.host

    @property
    def account_name(self) -> str:
        return self._api.account.name

    @property
    def account(self) -> JsAccount:
        """The JetStream side of the account that asks."""
        account = self._api.js_account
        assert account is not None, "the dispatcher let nobody else in"
        return account

    @property
    def stream(self) -> Stream:
        """The stream that the first wildcard names; raises ApiError 10059."""
        return self.account.stream(self.names[0])

    @property
    def is_strict(self) -> bool:
        return self.host.options.jetstream.strict

    def read(self, shape: Struct) -> dict[str, Any]:
        """The fields of the payload; raises ApiError 10025."""
        return read_request(self.payload, shape, strict=self.is_strict)

    def reply(self, fields: Mapping[str, Any], *, is_counted: bool = True, headers: bytes = b"") -> None:
        """Answer. What is not counted is not audited either."""
        self._answer({"type": _TYPE + self.endpoint.type, **fields}, is_counted, 0, headers)

    def fail(self, error: ApiError, *, is_error: bool = True) -> None:
        """Answer with an error; nats-server does not count all of them as such."""
        response = {"type": _TYPE + self.endpoint.type, "error": error.as_dict(), **self.endpoint.blank}
        self._answer(response, True, int(is_error))

    def guarded(self, step: Callable[[], None]) -> Callable[[], None]:
        """A step of the handler that may come later: what it raises is the answer."""

        def run() -> None:
            try:
                step()
            except ApiError as error:
                self.fail(error)
            except BadRequest:  # what no store can take
                self.fail(errors.BAD_REQUEST())
            except (StoreError, OSError) as error:
                self.host.log("error", f"request failed subject={decode_subject(self.msg.subject)!r} error={error}")
                self.fail(errors.STREAM_STORE_FAILED(_in_short(error)))
            except Exception as error:
                self.host.failed(f"request subject={decode_subject(self.msg.subject)}", error)
                self.fail(errors.STREAM_GENERAL("internal error"))

        return run

    def _answer(self, response: dict[str, Any], is_counted: bool, error_count: int, headers: bytes = b"") -> None:
        is_counted = is_counted and not self.endpoint.is_secret
        self._api.answer(self.msg, encode_json(response), is_counted, error_count, headers)


def _in_short(error: Exception) -> str:
    """What a client may know of a failure: no paths."""
    reason = error.strerror if isinstance(error, OSError) else type(error).__name__
    return f"stream store failed: {reason}"


class EndpointTable:
    """Endpoints by the literal tokens that their patterns begin with; the other tokens are wildcards."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._by_head: dict[tuple[str, ...], list[tuple[int, bool, Endpoint]]] = {}
        for endpoint in endpoints:
            tokens = endpoint.pattern.split(".")
            wild = [token for token in tokens if token in ("*", ">")]
            head = tuple(tokens[: len(tokens) - len(wild)])
            assert not {"*", ">"} & set(head), f"{endpoint.pattern}: wildcards come last"
            self._by_head.setdefault(head, []).append((len(wild), tokens[-1] == ">", endpoint))

    def find(self, subject: str) -> tuple[Endpoint, tuple[str, ...]] | None:
        """The endpoint of a subject (without its prefix) and what its wildcards stand for."""
        tokens = tuple(subject.split("."))
        for size in (3, 2, 1):
            for count, goes_on, endpoint in self._by_head.get(tokens[:size], ()):
                rest = tokens[size:]
                if len(rest) == count or (goes_on and len(rest) > count):
                    return endpoint, (*rest[: count - 1], ".".join(rest[count - 1 :])) if count else ()
        return None
