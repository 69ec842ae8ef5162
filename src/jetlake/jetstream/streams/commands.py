"""Commands: everything that can happen to the messages of a stream, as data.

The rules of a stream (`publish.py`, `stream.py`) decide which sequence, which time, whether at all. What they decide is
a command, and `machine.StreamMachine.apply` carries it out. A command says all that `apply` needs to know beside the
state, so the same commands give the same messages wherever they are applied. `log.LocalLog` applies a command at once
and releases what follows from it when it is durable.

What follows by rule needs no command of its own: limits evict, a roll-up purges, an expiry leaves a delete marker.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from jetlake.jetstream.streams.config import StreamConfig
from jetlake.store.api import StreamLimits
from jetlake.store.format import Buffer


class Append(NamedTuple):
    """Messages that met no rule, in the buffer they came in: the operations first..stop-1 (see `jetlake.ops`).

    Applied, it may end before `stop`: in front of a message that another one of the batch changed a rule for. What is
    applied elsewhere ends where it did here.
    """

    seq: int  # of the first
    time_ns: int  # of all
    data: Buffer
    ops: array[int]
    first: int
    stop: int


class Copy(NamedTuple):
    """Messages of another stream, with their sequences and times there. Sequences between them stay empty."""

    data: Buffer
    ops: array[int]
    seqs: array[int]
    times: array[int]


class Timing(NamedTuple):
    """What a message does to schedules (`jetlake.jetstream.schedules`)."""

    due_ns: int = 0  # when it is due, if it is a schedule itself
    scheduler: str = ""  # the subject of the schedule that it was made by, or that it ends
    next_ns: int = 0  # when that is due again; 0: never, and its messages go


class Put(NamedTuple):
    """One message with all that the rules found in its headers."""

    seq: int
    time_ns: int
    subject: str
    headers: bytes
    payload: bytes
    expires_ns: int = 0
    msg_id: bytes = b""
    replaces: str = ""  # the filter of what it stands for: all such messages before it go
    timing: Timing | None = None


class AppendAll(NamedTuple):
    """An atomic batch: all of its messages, with what the rules found in their headers, or none.

    Members are numbered from 0, in the order of the operations.
    """

    seq: int  # of the first
    time_ns: int  # of all
    data: Buffer
    ops: array[int]
    expires: array[int] = array("q")  # for each, 0 for one that stays; or nothing
    msg_ids: Sequence[tuple[int, bytes]] = ()
    replaces: Sequence[tuple[int, str]] = ()  # the filter of what a member stands for
    unwanted: Sequence[int] = ()  # members that nobody is interested in: they use up their sequence
    timings: Sequence[tuple[int, Timing]] = ()  # of members that have to do with schedules


class Skip(NamedTuple):
    """Sequences up to `seq` are used without a message: nobody was interested."""

    seq: int
    time_ns: int
    msg_id: bytes = b""
    timing: Timing | None = None


class Remove(NamedTuple):
    """Some messages go."""

    seqs: Sequence[int]


class Erase(NamedTuple):
    """A message goes, and its bytes with it."""

    seq: int


class Purge(NamedTuple):
    """Messages that match go: all, or those below a sequence, or all but the newest few."""

    filter: str = ">"
    below_seq: int = 0
    keep: int = 0


class PurgeSome(NamedTuple):
    """The oldest messages that match, between two sequences and no more than so many, go."""

    filter: str
    first_seq: int
    last_seq: int
    count_max: int


class Truncate(NamedTuple):
    """Everything after a sequence goes, and the next message gets the sequence after it."""

    seq: int


class Expire(NamedTuple):
    """What is too old goes, no more than about so many messages."""

    now_ns: int
    count_max: int


class Configure(NamedTuple):
    """Other limits, enforced at once, and another window for duplicates; and the configuration that they are of."""

    limits: StreamLimits
    duplicate_window_ns: int
    now_ns: int
    config: StreamConfig | None = None


Command = Append | AppendAll | Copy | Put | Skip | Remove | Erase | Purge | PurgeSome | Truncate | Expire | Configure
