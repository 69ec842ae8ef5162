"""What does it cost to find the subscribers of a message, cached and not, among few and many subscriptions?

The peer is what a server without an index does: ask each subscription whether its pattern matches. One subscription in
four is a pattern (`orders.eu-17.*`), one in eight belongs to a queue group, and one is `orders.>`. "cached" asks again
for subjects that were asked for; "uncached" asks with a cache of no entries. "churn" is an inbox that comes, gets one
message and goes, as in a request.
"""

from __future__ import annotations

import random
import tracemalloc
from typing import NamedTuple

from benchmarks._load import SEED
from benchmarks._report import calls, cpu_ns, heading, interleaved, speed_ratio, table
from jetlake.broker.sublist import Sublist
from jetlake.subjects import matches

SIZES = (1, 1_000, 100_000)
SIZES_SMOKE = (1, 50)
CALLS = 100_000
CALLS_SMOKE = 200
SUBJECTS = 1_000  # distinct ones asked for; they fit the cache
PEER_WALL_S_MAX = 1.0


class Sub(NamedTuple):
    subject: bytes
    queue: bytes | None


def main(smoke: bool = False) -> None:
    """Print the costs."""
    sizes, count = (SIZES_SMOKE, CALLS_SMOKE) if smoke else (SIZES, CALLS)
    heading(__doc__, f"seed {SEED}, {SUBJECTS:,} subjects of 3 tokens, {count:,} calls; CPU time per call")
    rows = [_measure(size, count) for size in sizes]
    table(["subscriptions", "cached", "uncached", "churn", "peer", "ratio uncached to peer", "bytes each"], rows)


def _measure(size: int, count: int) -> list[str]:
    rng = random.Random(SEED)
    subs = [_subscription(number) for number in range(size)]
    cached: Sublist[Sub] = Sublist()
    uncached: Sublist[Sub] = Sublist(cache_count_max=0)
    for sub in subs:
        cached.insert(sub)
        uncached.insert(sub)
    asked = [b"orders.eu-%d.created" % rng.randrange(size) for _ in range(SUBJECTS)]
    subjects = [rng.choice(asked) for _ in range(count)]
    patterns = [sub.subject.decode() for sub in subs]

    def peer(subject: bytes) -> list[str]:
        text = subject.decode()
        return [pattern for pattern in patterns if matches(pattern, text)]

    def churn(number: int) -> None:
        inbox = Sub(b"_INBOX.%d.*" % number, None)
        cached.insert(inbox)
        cached.match(b"_INBOX.%d.1" % number)
        cached.remove(inbox)

    assert all(len(peer(subject)) == _found(cached, subject) for subject in asked[:5])
    costs = interleaved(
        {
            "cached": lambda: calls(cached.match, subjects),
            "uncached": lambda: calls(uncached.match, subjects),
            "churn": lambda: calls(churn, range(count)),
            "peer": lambda: calls(peer, subjects, wall_s_max=PEER_WALL_S_MAX),
        }
    )
    shown = [f"{cpu_ns(costs[name]):,.0f} ns" for name in ("cached", "uncached", "churn", "peer")]
    return [f"{size:,}", *shown, f"{speed_ratio(costs['uncached'], costs['peer']):,.1f} ×", _memory(subs)]


def _subscription(number: int) -> Sub:
    queue = b"workers" if number % 8 == 3 else None
    if number == 0:
        return Sub(b"orders.>", queue)
    return Sub(b"orders.eu-%d.%s" % (number, b"*" if number % 4 == 0 else b"created"), queue)


def _found(index: Sublist[Sub], subject: bytes) -> int:
    match = index.match(subject)
    return len(match.plain) + sum(map(len, match.queues))


def _memory(subs: list[Sub]) -> str:
    """What the index takes for each subscription, beside the subscription itself."""
    tracemalloc.start()
    index: Sublist[Sub] = Sublist()
    for sub in subs:
        index.insert(sub)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return f"{size / len(subs):,.0f}"
