"""`persist_mode: async` and a kill right after the acks: what was acknowledged is there, and no sequence is used twice.

A difference: nats-server loses such messages, and gives their sequences to others.
"""

from __future__ import annotations

from pathlib import Path

from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, Server

ROUNDS, COUNT = 5, 20


def test_difference_kill_right_after_the_acks_loses_nothing(tmp_path: Path) -> None:
    server = Server(JETLAKE, tmp_path)
    try:
        for number in range(ROUNDS):
            server.start()
            with Peer(server) as peer:
                peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "persist_mode": "async"})
                seqs = [peer.request("S.a", b"%d" % number).json["seq"] for _ in range(COUNT)]
                assert seqs == list(range(number * COUNT + 1, (number + 1) * COUNT + 1))
                server.kill()
        server.start()
        with Peer(server) as peer:
            assert peer.api("STREAM.INFO.S")["state"]["messages"] == ROUNDS * COUNT
    finally:
        server.kill()
