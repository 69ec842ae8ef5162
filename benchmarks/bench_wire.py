"""What does finding a publish in a received buffer cost, and how much does the compiled twin save?

A buffer is what one socket read brings. The last rows show messages with a reply, and with headers that must be
searched for `Nats-` names, too.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

from benchmarks._load import PAYLOAD_SIZE, SEED
from benchmarks._report import ROUNDS, Cost, Stopwatch, cpu_ns, goal, heading, interleaved, speed_ratio, table, wall_ns
from jetlake.ops import OP_WORDS
from jetlake.wire import _tokenize_py
from jetlake.wire.protocol import MAX_CONTROL_LINE, MAX_PAYLOAD, NEED_MORE
from jetlake.wire.tokenize import COMPILED, tokenize

READ_SIZE = 256 * 1024
CPU_NS_GOAL = 60
HEADERS = b"NATS/1.0\r\nContent-Type: application/json\r\nNats-Msg-Id: 0123456789abcdef\r\n\r\n"

Tokenizer = Callable[..., tuple[int, int, int, int]]


def read_of(kind: str) -> tuple[bytearray, int]:
    """A full buffer of whole messages, and how many they are."""
    rng, data, count = random.Random(SEED), bytearray(), 0
    while True:
        payload, subject = rng.randbytes(PAYLOAD_SIZE), b"orders.eu.%d" % rng.randrange(1000)
        line = {
            "PUB": b"PUB %s %d\r\n" % (subject, PAYLOAD_SIZE),
            "PUB with a reply": b"PUB %s _INBOX.Zx8sKq0pPq9Vd3.%06d %d\r\n" % (subject, count, PAYLOAD_SIZE),
            "HPUB": b"HPUB %s %d %d\r\n%s" % (subject, len(HEADERS), len(HEADERS) + PAYLOAD_SIZE, HEADERS),
        }[kind]
        if len(data) + len(line) + PAYLOAD_SIZE + 2 > READ_SIZE:
            return data, count
        data += line + payload + b"\r\n"
        count += 1


def main(smoke: bool = False) -> None:
    repeats, rounds = (1, 1) if smoke else (200, 2 * ROUNDS + 1)
    heading(
        __doc__, f"buffers of {READ_SIZE // 1024} KiB, payloads of {PAYLOAD_SIZE} B; seed {SEED}, median of {rounds}"
    )
    if not COMPILED:
        print("  wire's own kernel is not built: both rows are the Python twin\n")

    def walk(kind: str, walker: Tokenizer, times: int) -> Callable[[], Cost]:
        data, count = read_of(kind)
        ops = array("I", bytes(4 * OP_WORDS * count))

        def run() -> Cost:
            with Stopwatch() as watch:
                for _ in range(times):
                    found = walker(data, 0, len(data), ops, count, MAX_PAYLOAD, MAX_CONTROL_LINE)
                    assert found == (count, len(data), NEED_MORE, 0)
            return watch.per(count * times)

        return run

    costs = interleaved(
        {
            "PUB": walk("PUB", tokenize, repeats),
            "peer: PUB, the Python twin": walk("PUB", _tokenize_py.tokenize, max(1, repeats // 40)),
            "PUB with a reply": walk("PUB with a reply", tokenize, repeats),
            "HPUB": walk("HPUB", tokenize, repeats),
            "peer: HPUB, the Python twin": walk("HPUB", _tokenize_py.tokenize, max(1, repeats // 40)),
        },
        rounds,
    )
    ours, peer = costs["PUB"], costs["peer: PUB, the Python twin"]
    rows = [
        [label, f"{wall_ns(cost):,.1f}", f"{cpu_ns(cost):,.1f}", f"{speed_ratio(cost, ours):.3f}"]
        for label, cost in costs.items()
    ]
    table(["case", "ns a message", "CPU ns a message", "ratio to the first"], rows)
    print(f"  CPU ns for a PUB: {cpu_ns(ours):.1f} ({goal(cpu_ns(ours), CPU_NS_GOAL, at_most=True)})")
    print(f"  ratio tokenize / its twin: {speed_ratio(ours, peer):.0f}")
