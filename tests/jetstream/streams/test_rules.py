"""Rules of configurations that nats-server with default settings does not show; the others are in
test_same_as_nats_server.py."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jetlake.config.options import AccountJetStream, JetStreamLimits
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import Republish, Storage, StreamConfig
from jetlake.jetstream.streams.rules import check_config, check_update

SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS


def check(
    account: AccountJetStream = AccountJetStream(),  # noqa: B008  frozen
    server: JetStreamLimits = JetStreamLimits(),  # noqa: B008  frozen
    pedantic: bool = False,
    **fields: Any,
) -> StreamConfig:
    return check_config(StreamConfig(name="S", **fields), pedantic=pedantic, account=account, server=server)


def refusal(*arguments: Any, **fields: Any) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        check(*arguments, **fields)
    return caught.value.err_code, caught.value.description


def test_checking_twice_changes_nothing() -> None:
    config = check(subject_delete_marker_ttl=SECOND_NS, republish=Republish(dest="r.>"), max_age=MINUTE_NS)
    again = check_config(config, pedantic=False, account=AccountJetStream(), server=JetStreamLimits())
    assert again == config


def test_the_server_limits_the_duplicate_window() -> None:
    server = JetStreamLimits(duplicate_window_ns=MINUTE_NS)
    assert check(server=server).duplicate_window == MINUTE_NS
    text = "duplicates window can not be larger then server limit of 1m0s"
    assert refusal(server=server, duplicate_window=2 * MINUTE_NS) == (10052, text)
    text = "pedantic mode: duplicate window limits are higher than current limits"
    assert refusal(server=server, pedantic=True) == (10157, text)


def test_an_account_may_require_max_bytes() -> None:
    account = AccountJetStream(max_bytes_required=True)
    assert refusal(account)[0] == 10113
    assert check(account, max_bytes=5).max_bytes == 5


def test_an_account_limits_max_bytes_by_storage() -> None:
    account = AccountJetStream(store_max_stream_bytes=10, memory_max_stream_bytes=20)
    assert refusal(account, max_bytes=11)[0] == 10122
    assert check(account, max_bytes=11, storage=Storage.MEMORY).max_bytes == 11
    assert refusal(account, max_bytes=21, storage=Storage.MEMORY)[0] == 10122


def test_sealing_turns_the_rest_off() -> None:
    old = check(max_age=MINUTE_NS, allow_rollup_hdrs=True)
    new = check_update(old, replace(old, sealed=True))
    assert (new.max_age, new.discard, new.deny_delete, new.deny_purge) == (0, "new", True, True)
    assert not new.allow_rollup_hdrs


def test_a_republish_to_nowhere_cannot_come_by_an_update() -> None:
    old = check()
    with pytest.raises(ApiError, match="forms a cycle"):
        check_update(old, replace(old, republish=Republish(src=">", dest="")))
