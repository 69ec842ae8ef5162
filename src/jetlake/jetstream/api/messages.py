"""Messages of a stream: get one, delete one, purge many."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from jetlake.errors import BadRequest, MessageNotFound
from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.api.stream_info import readable
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.json.shape import BOOL, INT, STRING, STRINGS, TIME, UINT64, Struct, is_empty_request, is_json
from jetlake.jetstream.streams import slices
from jetlake.jetstream.streams.config import Storage
from jetlake.jetstream.streams.rules import is_valid_subject
from jetlake.store import StoredMsg
from jetlake.store.format import SEQ_MAX
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

GET = Struct(
    "JSApiMsgGetRequest",
    {
        "seq": UINT64,
        "last_by_subj": STRING,
        "next_by_subj": STRING,
        "batch": INT,
        "max_bytes": INT,
        "start_time": TIME,
        "multi_last": STRINGS,
        "up_to_seq": UINT64,
        "up_to_time": TIME,
        "no_hdr": BOOL,
    },
)
_DELETE = Struct("JSApiMsgDeleteRequest", {"seq": UINT64, "no_erase": BOOL})
_PURGE = Struct("JSApiStreamPurgeRequest", {"seq": UINT64, "filter": STRING, "keep": UINT64})


def has_conflict(fields: dict[str, Any]) -> bool:
    """Whether a get says in two ways which message it wants."""
    seq, last, next_by = fields.get("seq", 0), fields.get("last_by_subj", ""), fields.get("next_by_subj", "")
    has_time = "start_time" in fields
    return bool((seq and (last or has_time)) or (has_time and last) or (last and next_by))


def load(stream: Stream, fields: dict[str, Any]) -> StoredMsg | None:
    """The message that a get wants."""
    store, next_by = stream.store, fields.get("next_by_subj", "")
    seq = store.seq_from_time(fields["start_time"]) if "start_time" in fields else fields.get("seq", 0)
    try:
        if next_by:
            return store.load_next(max(seq, 1), next_by)
        return store.load(seq) if seq else store.load_last(fields["last_by_subj"])
    except (MessageNotFound, BadRequest):  # none there, or a filter that matches nothing
        return None


def get(request: Request) -> None:
    if is_empty_request(request.payload):
        raise errors.BAD_REQUEST()
    fields = request.read(GET)
    is_about_one = any(fields.get(name) for name in ("seq", "last_by_subj", "next_by_subj")) or "start_time" in fields
    is_batch = fields.get("batch", 0) > 0 or fields.get("max_bytes", 0) > 0
    if is_batch or not is_about_one or has_conflict(fields):
        raise errors.BAD_REQUEST()
    message = load(request.stream, fields)
    if message is None:
        raise errors.NO_MESSAGE_FOUND()
    shown: dict[str, Any] = {"subject": readable(message.subject), "seq": message.seq}
    if message.headers and not fields.get("no_hdr"):
        shown["hdrs"] = b64encode(message.headers).decode()
    if message.payload:
        shown["data"] = b64encode(message.payload).decode()
    shown["time"] = format_time(message.time_ns)
    request.stream.log.when_committed(
        message.seq, lambda: request.reply({"message": shown}, is_counted=False), request.fail
    )


def delete(request: Request) -> None:
    if is_empty_request(request.payload):
        raise errors.BAD_REQUEST()
    fields = request.read(_DELETE)
    stream, seq = request.stream, fields.get("seq", 0)
    if stream.config.sealed:
        raise errors.STREAM_SEALED()
    if stream.config.deny_delete:
        raise errors.STREAM_MSG_DELETE_FAILED("message delete not permitted")

    def deleted(was_there: bool) -> None:
        if was_there:
            request.reply({"success": True})
        else:
            request.fail(_absence(stream, seq), is_error=False)

    stream.delete_message(seq, erase=not fields.get("no_erase", False), done=deleted, failed=request.fail)


def _absence(stream: Stream, seq: int) -> ApiError:
    """What to say of a message that is not there; nats-server's stores differ, and so do their words."""
    if stream.config.storage is Storage.FILE:
        if seq > stream.last_seq:
            return errors.STREAM_MSG_DELETE_FAILED("stream store EOF")
        if seq < stream.store.catalog.first_seq:
            return errors.STREAM_MSG_DELETE_FAILED("no message found")
    return errors.SEQUENCE_NOT_FOUND(seq)


def purge(request: Request) -> None:
    fields = request.read(_PURGE) if is_json(request.payload) else {}
    filter, seq, keep = fields.get("filter", ""), fields.get("seq", 0), fields.get("keep", 0)
    if (seq and keep) or seq > SEQ_MAX:
        raise errors.BAD_REQUEST()
    stream = request.stream
    if stream.config.sealed:
        raise errors.STREAM_SEALED()
    if stream.config.deny_purge:
        raise errors.STREAM_PURGE_FAILED("stream purge not permitted")

    def failed(error: ApiError) -> None:
        request.fail(errors.STREAM_PURGE_FAILED(error.description))

    def answer(purged: int) -> None:
        stream.log.when_durable(lambda: request.reply({"success": True, "purged": purged}), failed)

    if filter and not is_valid_subject(filter):
        answer(0)
    else:
        slices.purge(stream, filter or ">", seq, keep, answer, request.guarded)


ENDPOINTS = [
    Endpoint("STREAM.MSG.GET.*", "stream_msg_get_response", get),
    Endpoint("STREAM.MSG.DELETE.*", "stream_msg_delete_response", delete),
    Endpoint("STREAM.PURGE.*", "stream_purge_response", purge, {"purged": 0}),
]
