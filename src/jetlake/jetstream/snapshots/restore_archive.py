"""Read a snapshot archive (format 2) into a draft, as its bytes come.

The texts of errors are nats-server's. An archive may hold more than one needs: what follows its end is ignored.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from jetlake.errors import BadRequest
from jetlake.jetstream import errors
from jetlake.jetstream.consumers.config import ConsumerConfig, read_config
from jetlake.jetstream.consumers.rules import INACTIVE_DEFAULT_NS
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.snapshots.draft import Draft, DraftConsumer
from jetlake.jetstream.snapshots.nats_store import expiry_of, ttl_of
from jetlake.ops import OP_SPECIAL, OP_WORDS
from jetlake.store.consumer_state import ConsumerState, Pending
from jetlake.store.nats.archive import MAGIC, SENTINEL, Head, decode_numbers, unpack
from jetlake.store.nats.blocks import Batch
from jetlake.store.nats.consumers import mended
from jetlake.wire.go_time import parse_time
from jetlake.wire.json_text import encode_json

_BATCH_COUNT = 1 << 14
_STATE_NAME, _CONSUMER_PREFIX = "state.json", "consumers/"
_BAD_ARCHIVE = "archive: invalid archive stream"


class RestoreError(Exception):
    """Why an archive cannot be restored, in nats-server's words."""


class Rules:
    """What a restore asks of the server: sizes, limits, whether a consumer may be."""

    def __init__(
        self,
        make: Callable[[int, int], Draft],
        check_consumer: Callable[[ConsumerConfig, list[ConsumerConfig]], None],
        check_size: Callable[[int], None],
        max_msg_size: int,
        max_payload: int,
        first_seq: int,
        now_ns: int,
    ) -> None:
        """`make` takes the time of creation and the first sequence. -1: no limit."""
        self.make, self.check_consumer, self.check_size = make, check_consumer, check_size
        self.max_msg_size, self.max_payload, self.first_seq, self.now_ns = max_msg_size, max_payload, first_seq, now_ns


class ArchiveReader:
    """Takes the plain bytes of an archive, its first ones included."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._rest = bytearray()
        self._step: Callable[[], bool] = self._take_magic
        self.draft: Draft | None = None
        self.last_seq = 0  # as its state says
        self._consumers_left = 0
        self._is_over = False
        self._ops = array("I", bytes(4 * OP_WORDS * _BATCH_COUNT))
        self._seqs, self._times = array("Q", bytes(8 * _BATCH_COUNT)), array("q", bytes(8 * _BATCH_COUNT))

    def feed(self, plain: bytes | bytearray) -> None:
        """Take more bytes; raises RestoreError or ApiError."""
        if self._is_over:
            return
        self._rest += plain
        while self._step():
            pass

    def finish(self) -> None:
        """Nothing follows; raises RestoreError unless the archive is whole."""
        if self._is_over:
            return
        if not self._rest:
            raise RestoreError("EOF")
        if self.draft is None:
            raise RestoreError(f"error in state.json: {_BAD_ARCHIVE}")
        if self._consumers_left:
            found = decode_numbers(self._rest, 0, len(self._rest))
            name = self._name(found).removeprefix(_CONSUMER_PREFIX) if isinstance(found, Head) else ""
            raise RestoreError(f'failed to decode consumer "{name}" state: {_BAD_ARCHIVE}' if name else _BAD_ARCHIVE)
        head = decode_numbers(self._rest, 0, len(self._rest))
        where = f"failed to read message sequence {head.seq}: " if isinstance(head, Head) else ""
        raise RestoreError(f"{where}{_BAD_ARCHIVE}")

    # Steps: each takes what it can, and says whether another may follow at once.

    def _take_magic(self) -> bool:
        assert self._rest[: len(MAGIC)] == MAGIC, "the caller looked"
        del self._rest[: len(MAGIC)]
        self._step = self._take_state
        return True

    def _take_state(self) -> bool:
        found = self._entry()
        if found is None:
            return False
        name, payload = found
        if name != _STATE_NAME:
            raise RestoreError(f'expected state.json, found "{name}"')
        try:
            state = msgspec.json.decode(payload)
            numbers = {part: int(state.get(part, 0)) for part in ("messages", "bytes", "first_seq", "last_seq")}
            self._consumers_left = int(state.get("consumer_count", 0))
            created_ns = parse_time(state["created"]) if "created" in state else self._rules.now_ns
        except (msgspec.MsgspecError, AttributeError, TypeError, ValueError) as error:
            raise RestoreError(f"error in state.json: {error}") from None
        _check_state(numbers)
        if self._rules.first_seq > max(numbers["first_seq"], 1):
            raise RestoreError("failed to process gap: expected sequence does not match store")
        self._rules.check_size(numbers["bytes"])
        self.last_seq = numbers["last_seq"]
        self.draft = self._rules.make(created_ns, max(numbers["first_seq"], 1))
        self._step = self._take_consumer if self._consumers_left else self._take_messages
        return True

    def _take_consumer(self) -> bool:
        found = self._entry()
        if found is None:
            return False
        name, payload = found
        if not name.startswith(_CONSUMER_PREFIX):
            raise RestoreError(f'expected consumer, found "{name}"')
        assert self.draft is not None
        self.draft.consumers.append(self._consumer(name.removeprefix(_CONSUMER_PREFIX), payload))
        self._consumers_left -= 1
        if not self._consumers_left:
            self._step = self._take_messages
        return True

    def _consumer(self, name: str, payload: bytes) -> DraftConsumer:
        assert self.draft is not None
        try:
            fields = msgspec.json.decode(payload)
            for part in ("config", "state"):
                if not fields.get(part):
                    raise RestoreError(f'consumer "{name}" is missing {part}')
            config = read_config(encode_json(fields["config"]))
            state = read_state(fields["state"])
            created_ns = parse_time(fields["created"]) if "created" in fields else self._rules.now_ns
            if not config.is_durable and config.inactive_threshold <= 0:
                config = replace(config, inactive_threshold=INACTIVE_DEFAULT_NS)
            self._rules.check_consumer(config, [other.config for other in self.draft.consumers])
        except ApiError as error:
            text = f"{error.description} ({error.err_code})"
            raise RestoreError(f'failed to add consumer "{name}": {text}') from None
        except (msgspec.MsgspecError, AttributeError, TypeError, KeyError, ValueError) as error:
            raise RestoreError(f'failed to decode consumer "{name}" state: {error}') from None
        return DraftConsumer(config.durable_name or config.name or name, created_ns, config, state)

    def _take_messages(self) -> bool:
        rest = self._rest
        found = unpack(rest, 0, len(rest), self._ops, self._seqs, self._times)
        if found.entries:
            batch = Batch(rest, found.entries, self._ops, self._seqs, self._times)
            self._add(batch)
            del batch
            del rest[: found.end]
        if found.problem:
            raise RestoreError(_BAD_ARCHIVE)
        if rest[: len(SENTINEL)] == SENTINEL:
            self._is_over = True
            self._rest = bytearray()
            return False
        head = decode_numbers(rest, 0, len(rest))
        if isinstance(head, Head) and not head.seq:
            raise RestoreError("expected message sequence")
        return found.entries == len(self._seqs)

    def _add(self, batch: Batch) -> None:
        draft, expires = self.draft, array("q")
        assert draft is not None
        self._check_sizes(batch)
        if draft.config.allow_msg_ttl:
            _check_ttls(batch)
            expires = expiry_of(batch)
        last_seq = draft.store.catalog.last_seq
        try:
            draft.add(batch.data, batch.ops, batch.seqs, batch.times, expires, stop=batch.entries)
        except BadRequest:
            seqs = [last_seq, *batch.seqs[: batch.entries]]
            pairs = zip(seqs, islice(seqs, 1, None), strict=False)
            wrong = next((after for before, after in pairs if after <= before), 0)
            raise RestoreError(f"message sequence {wrong} out of order") from None
        self._rules.check_size(draft.store.catalog.size)

    def _check_sizes(self, batch: Batch) -> None:
        stop = batch.entries * OP_WORDS
        headers, payloads = batch.ops[5:stop:OP_WORDS], batch.ops[7:stop:OP_WORDS]
        limits = ((self._rules.max_payload, "payload"), (self._rules.max_msg_size, "message"))
        for size_max, what in limits:
            if size_max < 0 or max(headers) + max(payloads) <= size_max:
                continue
            for place, size in enumerate(map(operator.add, headers, payloads)):
                if size > size_max:
                    raise RestoreError(f"message sequence {batch.seqs[place]} exceeds maximum {what} size")

    # Entries that are not messages

    def _entry(self) -> tuple[str, bytes] | None:
        """The next entry, if it is complete."""
        found = decode_numbers(self._rest, 0, len(self._rest))
        if isinstance(found, str):
            raise RestoreError(_BAD_ARCHIVE)
        if found is None or found.start + found.name_size + found.headers_size + found.payload_size > len(self._rest):
            return None
        start = found.start + found.name_size + found.headers_size
        entry = self._name(found), bytes(self._rest[start : start + found.payload_size])
        del self._rest[: start + found.payload_size]
        return entry

    def _name(self, head: Head) -> str:
        return bytes(self._rest[head.start : head.start + head.name_size]).decode("utf-8", "replace")


def _check_state(numbers: dict[str, int]) -> None:
    msgs, first, last = numbers["messages"], numbers["first_seq"], numbers["last_seq"]
    if msgs and (first == 0 or last < first):
        raise RestoreError("invalid stream state: inconsistent message count or sequence range")
    if msgs > last - first + 1 and msgs:
        raise RestoreError("invalid stream state: message count exceeds sequence range")


def _check_ttls(batch: Batch) -> None:
    for place, flags in enumerate(batch.ops[9 : batch.entries * OP_WORDS : OP_WORDS]):
        if flags & OP_SPECIAL:
            start, size = batch.ops[place * OP_WORDS + 4 : place * OP_WORDS + 6]
            if not ttl_of(bytes(batch.data[start : start + size])):
                text = errors.MESSAGE_TTL_INVALID()
                raise RestoreError(f"failed to parse message TTL: {text.description} ({text.err_code})")


def read_state(fields: dict[str, Any]) -> ConsumerState:
    """A consumer's state as an archive has it; raises ValueError, KeyError or TypeError."""
    delivered, floor = fields["delivered"], fields["ack_floor"]
    state = ConsumerState(
        delivered["consumer_seq"], delivered["stream_seq"], floor["consumer_seq"], floor["stream_seq"]
    )
    for seq, entry in (fields.get("pending") or {}).items():
        state.pending[int(seq)] = Pending(entry["Sequence"], entry["Timestamp"])
    state.redelivered = {int(seq): int(count) for seq, count in (fields.get("redelivered") or {}).items()}
    return mended(state)
