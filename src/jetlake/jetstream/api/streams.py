"""Streams: create, update, delete, and look at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.api.stream_info import stream_info
from jetlake.jetstream.clustering import AnsweredBy
from jetlake.jetstream.json.shape import BOOL, INT, STRING, Struct, is_empty_request, is_json
from jetlake.jetstream.streams import slices
from jetlake.jetstream.streams.answers import Failed
from jetlake.jetstream.streams.config import parse_request, with_level
from jetlake.jetstream.streams.rules import check_create, check_sizes, is_valid_subject
from jetlake.jetstream.streams.stream import Stream

NAMES_MAX = 1024
LIST_MAX = 256
SUBJECTS_MAX = 100_000

_BLANK_PAGE = {"total": 0, "offset": 0, "limit": 0}
_PAGES = {
    name: Struct(name, {"offset": INT, "subject": STRING})
    for name in ("JSApiStreamNamesRequest", "JSApiStreamListRequest")
}
_INFO = Struct("JSApiStreamInfoRequest", {"offset": INT, "deleted_details": BOOL, "subjects_filter": STRING})


def create(request: Request) -> None:
    config, pedantic = parse_request(request.payload, strict=request.is_strict)
    if config.name != request.names[0]:
        raise errors.STREAM_NAME_MISMATCH()
    config = with_level(config)  # its size counts
    check_create(config)
    if request.account.when_gone(config.name, request.guarded(lambda: create(request))):
        return  # a stream of that name is on its way out
    stream = request.account.create(config, pedantic=pedantic)
    _answer_when_ready(
        request,
        stream,
        lambda: request.reply({**stream_info(stream, with_domain=False), "did_create": True}),
        lambda error: request.fail(errors.STREAM_CREATE(error.description)),
    )


def update(request: Request) -> None:
    config, pedantic = parse_request(request.payload, strict=request.is_strict)
    config = request.account.checked(config, pedantic=pedantic)
    if config.name != request.names[0]:
        raise errors.STREAM_NAME_MISMATCH()
    stream, config = request.stream, with_level(config)
    check_sizes(config)  # once more, since its level counts

    def finish() -> None:
        request.account.update(stream, config)
        _answer_when_ready(
            request,
            stream,
            lambda: request.reply(stream_info(stream)),
            lambda error: request.fail(errors.STREAM_UPDATE(error.description)),
        )

    slices.shrink(stream, request.account.updated(stream, config), finish, request.guarded)


def _answer_when_ready(request: Request, stream: Stream, done: Callable[[], None], failed: Failed) -> None:
    """Answer once a stream takes all its subjects, and all of this is durable."""
    stream.when_open(request.guarded(lambda: stream.log.when_durable(done, failed)))


def delete(request: Request) -> None:
    if not is_empty_request(request.payload):
        raise errors.NOT_EMPTY_REQUEST()
    request.account.remove(request.stream, lambda: request.reply({"success": True}), request.fail)


def names(request: Request) -> None:
    offset, subject = read_page(request, "JSApiStreamNamesRequest")
    found = [stream.config.name for stream in request.account.streams_about(subject)]
    offset = min(offset, len(found))
    page = found[offset : offset + NAMES_MAX]
    request.reply({"total": len(found), "offset": offset, "limit": NAMES_MAX, "streams": page or None})


def list_all(request: Request) -> None:
    offset, subject = read_page(request, "JSApiStreamListRequest")
    found = request.account.streams_about(subject)
    offset = min(offset, len(found))
    page = [stream_info(stream, with_server=False) for stream in found[offset : offset + LIST_MAX]]
    fields: dict[str, Any] = {"total": len(found), "offset": offset, "limit": LIST_MAX, "streams": page}
    if request.account.offline:
        fields["missing"] = sorted(request.account.offline)
        fields["offline"] = request.account.offline
    request.reply(fields)


def info(request: Request) -> None:
    fields = request.read(_INFO) if is_json(request.payload) else {}
    stream = request.stream
    offset, filter = max(fields.get("offset", 0), 0), fields.get("subjects_filter", "")
    page, subjects = dict(_BLANK_PAGE), None
    if filter and is_valid_subject(filter):
        total, shown = stream.store.subjects_page(filter, offset, SUBJECTS_MAX)
        page = {"total": total, "offset": offset, "limit": SUBJECTS_MAX} if total else page
        subjects = shown if offset < total else None
    details = fields.get("deleted_details", False)
    request.reply({**page, **stream_info(stream, with_cluster=True, with_deleted=details, subjects=subjects)})


def read_page(request: Request, type: str) -> tuple[int, str]:
    """Where a list begins, and what it is about."""
    fields = request.read(_PAGES[type]) if is_json(request.payload) else {}
    return max(fields.get("offset", 0), 0), fields.get("subject", "")


_META = AnsweredBy.META_LEADER

ENDPOINTS = [
    Endpoint("STREAM.CREATE.*", "stream_create_response", create, answered_by=_META),
    Endpoint("STREAM.UPDATE.*", "stream_update_response", update, answered_by=_META),
    Endpoint("STREAM.DELETE.*", "stream_delete_response", delete, answered_by=_META),
    Endpoint("STREAM.NAMES", "stream_names_response", names, {**_BLANK_PAGE, "streams": None}, answered_by=_META),
    Endpoint("STREAM.LIST", "stream_list_response", list_all, {**_BLANK_PAGE, "streams": []}, answered_by=_META),
    Endpoint("STREAM.INFO.*", "stream_info_response", info, _BLANK_PAGE, answered_by=AnsweredBy.STREAM_MEMBER),
]
