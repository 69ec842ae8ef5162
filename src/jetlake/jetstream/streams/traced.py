"""Messages that are traced, as a stream stores them; or does not, where only the trace is wanted.

What is stored asks for no trace any more: or each delivery to another server would be told of, too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jetlake.errors import BadRequest, StoreError
from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams import publish
from jetlake.subjects import decode_subject
from jetlake.wire.headers import append_headers, header_value

if TYPE_CHECKING:
    from jetlake.broker.recipients import Stored
    from jetlake.broker.subscription import Msg
    from jetlake.jetstream.streams.stream import Stream

DEST, DISABLED = b"Nats-Trace-Dest", b"trace disabled"
DUPLICATE = "msgid is duplicate"
_TEXTS = {
    errors.EXPECTED_STREAM_MISMATCH.err_code: "expected stream does not match",
    errors.MESSAGE_TTL_DISABLED.err_code: "message TTL disabled",
    errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code: "maximum payload exceeded",
    errors.STREAM_HEADER_EXCEEDS_MAXIMUM.err_code: "maximum payload exceeded",
}


class _Outcome(NamedTuple):
    """What becomes of a message."""

    subject: bytes
    no_interest: bool = False
    problem: str = ""
    error: ApiError | None = None


def ingest_traced(stream: Stream, msg: Msg, is_only: bool, done: Stored) -> None:
    """Store a message, or only find out whether it would be; `done` is told when that is certain."""
    outcome = _find_out(stream, msg, is_only)
    if not is_only:
        stream.ingest_msg(msg._replace(headers=_disabled(msg.headers)))
    elif outcome.error is not None:
        stream.refuse(msg.reply, outcome.error)
        stream.changed()
    facts = (decode_subject(outcome.subject), outcome.no_interest)
    stream.log.when_durable(
        partial(done, *facts, outcome.problem), lambda error: done(*facts, outcome.problem or str(error))
    )


def _find_out(stream: Stream, msg: Msg, is_only: bool) -> _Outcome:
    subject = stream.transformed(msg.subject)
    try:
        if stream.log.problem is not None or stream.log.is_closed:
            raise stream.refusal()
        ready = publish.check(stream, subject, msg.headers, msg.payload, stream.host.clock())
        if not is_only:
            stream.store.check_new(subject, ready.headers, ready.payload, is_rollup=bool(ready.rollup))
    except publish.Duplicate:
        return _Outcome(subject, problem=DUPLICATE)
    except ApiError as error:
        return _Outcome(subject, problem=_text(error, msg.headers), error=error)
    except (BadRequest, StoreError) as error:
        return _Outcome(subject, problem=errors.reason(error))
    return _Outcome(subject, stream.interest is not None and not stream.interest.wants(subject))


def _text(error: ApiError, headers: bytes) -> str:
    """An error in the words that nats-server has for it in traces."""
    found = error.description.rpartition(": ")[2]
    match error.err_code:
        case errors.WRONG_LAST_SEQUENCE.err_code:
            for name, what in ((b"-Subject-Sequence", "last sequence by subject"), (b"-Sequence", "last sequence")):
                wanted = header_value(headers, b"Nats-Expected-Last" + name)
                if wanted is not None and wanted != found.encode():
                    return f"{what} mismatch: {wanted.decode('utf-8', 'replace')} vs {found}"
        case errors.WRONG_LAST_MSG_ID.err_code:
            wanted = header_value(headers, b"Nats-Expected-Last-Msg-Id") or b""
            return f'last msgid mismatch: "{wanted.decode("utf-8", "replace")}" vs "{found}"'
        case errors.STREAM_ROLLUP_FAILED.err_code:
            return error.description
    return _TEXTS.get(error.err_code, str(error))


def _disabled(headers: bytes) -> bytes:
    if header_value(headers, DEST) is None:
        return append_headers(headers, [(DEST, DISABLED)])
    return publish.replace_header(headers, DEST, DISABLED)
