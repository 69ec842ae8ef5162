"""What does it cost to know who a client is, and what it may do, beside nats-server?

Clients connect with a token (JWT) and a signature over the nonce, one after the other; a client with permissions of 50
subjects publishes. `CPU` is what the server's process spends on one connection or message, all its threads together.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks._report import ROUNDS, heading, scratch, table
from benchmarks._server_load import both_servers
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, NATS_SERVER, Server
from tests.compat.tokens import Operator, User

CONNECTS, MESSAGES = 1_000, 1_000_000
USERS = 50
_TICKS_S = 100  # a second, of /proc/PID/stat
PAYLOAD = b"0123456789abcdef"

Work = Callable[[Server, int], None]


def connect(users: list[User]) -> Work:
    """Log in, as many times as asked, each time as the next user."""

    def work(server: Server, count: int) -> None:
        for number in range(count):
            with users[number % len(users)].connect(server) as peer:
                assert peer.ask() == []

    return work


def publish(server: Server, count: int) -> None:
    """Publish to 200 subjects that are allowed."""
    subjects = [f"p{number % 25}.{number}.x" for number in range(200)]
    chunk = b"".join(f"PUB {subject} {len(PAYLOAD)}\r\n".encode() + PAYLOAD + b"\r\n" for subject in subjects) * 20
    with Peer(server, user="a", **{"pass": "b"}) as peer:
        for _ in range(max(count // 4_000, 1)):
            peer.send(chunk)
        assert peer.ask() == []


def permissions() -> str:
    """A user with 25 subjects that are allowed, and 25 that are denied."""
    allow = ", ".join(f'"p{number}.*.x"' for number in range(25))
    deny = ", ".join(f'"d{number}.>"' for number in range(25))
    publish = f"publish: {{ allow: [{allow}], deny: [{deny}] }}"
    return f"authorization {{ users: [ {{user: a, password: b, permissions: {{ {publish} }} }} ] }}"


def measure(config: str, work: Work, directory: Path, count: int, rounds: int) -> tuple[dict[str, list[float]], ...]:
    """Rates, and processor time in microseconds, of each server in each round."""
    rates: dict[str, list[float]] = {NATS_SERVER: [], JETLAKE: []}
    costs: dict[str, list[float]] = {NATS_SERVER: [], JETLAKE: []}
    with both_servers(directory, {NATS_SERVER: config, JETLAKE: config}) as servers:
        for _ in range(rounds):
            for kind, server in servers.items():
                before_s, begin_s = _cpu_s(server.pid), time.perf_counter()
                work(server, count)
                rates[kind].append(count / (time.perf_counter() - begin_s))
                costs[kind].append((_cpu_s(server.pid) - before_s) / count * 1e6)
    return rates, costs


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def main(smoke: bool = False) -> None:
    rounds, divisor = (1, 100) if smoke else (ROUNDS, 1)
    heading(__doc__, f"{USERS} users, {len(PAYLOAD)} B payloads; no seed, medians of {rounds} paired rounds")
    operator = Operator()
    account = operator.account("A")
    users = [account.user(pub={"allow": ["a.>", "b.*"]}) for _ in range(USERS)]
    cases: list[tuple[str, str, Work, int, str]] = [
        ("connect with JWT and nonce", operator.config(account.token()), connect(users), CONNECTS, "0.5 x"),
        ("publish, permissions of 50 subjects", permissions(), publish, MESSAGES, "1.0 x"),
    ]
    rows = []
    with scratch() as directory:
        for name, config, work, count, goal in cases:
            rates, costs = measure(config, work, directory, max(count // divisor, 10), rounds)
            ratio = statistics.median(
                ours / real for real, ours in zip(rates[NATS_SERVER], rates[JETLAKE], strict=True)
            )
            shown = [f"{statistics.median(rates[kind]):,.0f}/s" for kind in (NATS_SERVER, JETLAKE)]
            spent = [f"{statistics.median(costs[kind]):.2f}" for kind in (NATS_SERVER, JETLAKE)]
            rows.append([name, *shown, *spent, f"{ratio:.2f}", goal])
    table(["work", "nats-server", "JetLake", "its CPU µs", "our CPU µs", "ratio", "goal"], rows, left=(0, 6))
