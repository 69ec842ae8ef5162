"""Where a new consumer starts, as nats-server chooses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jetlake.jetstream.consumers.config import ConsumerConfig, DeliverPolicy
from jetlake.store.engine import BlockStore


class Start(NamedTuple):
    """The first sequence to look at; for the last message of each subject, the list of them and where to go on."""

    next_seq: int
    last_seqs: Sequence[int] = ()
    resume_seq: int = 0  # the first sequence after the list


def choose_start(config: ConsumerConfig, store: BlockStore, max_msgs_per_subject: int) -> Start:
    """The start that the deliver policy asks for in this stream."""
    state = store.fast_state()
    policy, filters = config.deliver_policy, config.filters
    if policy is DeliverPolicy.BY_START_SEQUENCE:
        return Start(max(config.opt_start_seq, state.first_seq))
    if state.first_seq == 0:  # never used
        return Start(1)
    start = Start(state.last_seq + 1)
    if policy is DeliverPolicy.ALL:
        start = Start(state.first_seq)
    elif policy is DeliverPolicy.LAST:
        start = Start(_last_seq(store, filters) if filters else state.last_seq)
    elif policy is DeliverPolicy.LAST_PER_SUBJECT and max_msgs_per_subject == 1:
        start = Start(state.first_seq)  # every message is the last of its subject
    elif policy is DeliverPolicy.LAST_PER_SUBJECT:
        seqs = store.queries.last_seqs(store.queries.filter(filters), None, None)
        start = Start(seqs[0] if seqs else state.last_seq, seqs, state.last_seq + 1)
    elif policy is DeliverPolicy.BY_START_TIME:
        assert config.opt_start_time is not None
        start = Start(_from_time(store, filters, config.opt_start_time, state.first_seq, state.last_seq))
    return start._replace(next_seq=max(min(start.next_seq, state.last_seq + 1), state.first_seq))


def _last_seq(store: BlockStore, filters: tuple[str, ...]) -> int:
    return store.queries.last_seq(store.queries.filter(filters)) or 0


def _from_time(store: BlockStore, filters: tuple[str, ...], time_ns: int, first_seq: int, last_seq: int) -> int:
    """The first message at or after a time; with filters, their first message if it comes later."""
    seq = store.seq_from_time(time_ns)
    nearest = last_seq
    for filter in filters:
        first = store.filtered_state(first_seq, filter).first_seq
        if seq <= first < nearest:
            nearest = first
    return nearest if filters and seq < nearest < last_seq else seq
