"""How servers become members of a cluster, and how the meta group follows.

*The first time.* A server that is in no cluster looks at those that it is linked with. If one of them is in a cluster,
it asks to be taken in. If all servers of the configuration are linked and none is in a cluster, the one with the
smallest name begins a cluster: a meta group of itself.

*Hello.* A server says who it is when it is new, and again whenever it hears of another leader: its tags and limits may
have changed. The leader gives a number to a new one, writes it down in the meta group, and answers with the number and
with how far its state goes. A server whose name is known and whose store is not gets a new number: its log is gone.

*The sweep.* The leader compares the members of the meta group with the servers that the state has, and changes one at a
time: a new one is a learner, which copies the state, and then a voter; one that was removed goes.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from jetlake.cluster.assignments import Node, peer_id
from jetlake.cluster.engine import node_of, raft_id
from jetlake.cluster.membership import NEAR_COUNT
from jetlake.cluster.meta_codec import NodeJoined
from jetlake.jetstream.errors import ApiError

if TYPE_CHECKING:
    from jetlake.cluster.local import LocalCluster
    from jetlake.cluster.questions import Reply

SWEEP_TICKS = 2
HELLO_TICKS = 10  # between two tries


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself."""

    cluster_id: str = ""
    node: Node


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader answers."""

    cluster_id: str
    number: int = 0
    applied: int = 0  # how far the leader's state goes
    problem: str = ""


class Admission:
    """The way of this server into its cluster, and of others while it leads."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._ticks = 0
        self._greeted = ""  # the leader who knows of this server, as it is now
        self._pending: dict[str, Node] = {}  # servers whose numbers are given out and not yet written down
        self.current_at = 0  # the state is current when it has this entry; 0 while that is not known
        self._complaints: set[str] = set()
        cluster.questions.serve("HELLO", self._hello)

    def leader_changed(self) -> None:
        """Whoever leads now may not know this server."""
        self._greeted = ""
        self._pending.clear()

    def tick(self) -> None:
        self._ticks += 1
        cluster = self._cluster
        if not cluster.identity.number:
            self._begin()
        elif cluster.meta.is_leader:
            if not self._ticks % SWEEP_TICKS:
                self._sweep()
        elif not self._ticks % HELLO_TICKS and not cluster.meta.is_leaderless:
            self._greet()

    # Into the cluster

    def _begin(self) -> None:
        cluster = self._cluster
        linked = cluster.host.linked()
        if any(other.cluster_id for other in linked):
            if not self._ticks % HELLO_TICKS or self._ticks < HELLO_TICKS:
                self._say_hello()
        elif cluster.host.is_complete() and all(cluster.own.name < other.name for other in linked):
            cluster.host.log("info", f"Creating a JetStream cluster name={cluster.name} servers={len(linked) + 1}")
            cluster.found(uuid.uuid4().hex)

    def _greet(self) -> None:
        """Tell a new leader who this server is."""
        leader = self._cluster.meta.leader
        if leader is None or self._greeted != leader.name:
            self._say_hello()

    def _say_hello(self) -> None:
        cluster = self._cluster
        hello = Hello(cluster_id=cluster.identity.cluster_id, node=cluster.own)
        cluster.questions.ask("HELLO", msgspec.json.encode(hello), self._welcomed, wait_s=0.9)

    def _welcomed(self, payload: bytes) -> bool:
        cluster, welcome = self._cluster, msgspec.json.decode(payload, type=Welcome)
        identity = cluster.identity
        if welcome.problem:
            self._complain(welcome.problem)
            return True
        if not identity.number:
            cluster.join(welcome.cluster_id, welcome.number)
        elif (identity.cluster_id, identity.number) != (welcome.cluster_id, welcome.number):
            self._complain(f"the cluster knows this server as number {welcome.number}, not {identity.number}")
            return True
        leader = cluster.meta.leader
        self._greeted = leader.name if leader is not None else ""
        self.current_at = max(self.current_at, welcome.applied)
        return True

    def _complain(self, problem: str) -> None:
        if problem not in self._complaints:
            self._complaints.add(problem)
            self._cluster.host.log("error", f"JetStream cluster: {problem}")

    # Others, while this server leads

    def _hello(self, payload: bytes, reply: Reply) -> None:
        cluster = self._cluster
        meta, identity = cluster.meta, cluster.identity
        if not meta.is_leader:
            return
        try:
            hello = msgspec.json.decode(payload, type=Hello)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            cluster.host.log("warning", f"hello that cannot be read: {error}")
            return

        def answer(number: int = 0, problem: str = "") -> None:
            welcome = Welcome(
                cluster_id=identity.cluster_id, number=number, applied=max(meta.applied, 1), problem=problem
            )
            reply(msgspec.json.encode(welcome))

        if hello.cluster_id and hello.cluster_id != identity.cluster_id:
            answer(problem=f"server {hello.node.name} is of another cluster ({hello.cluster_id})")
            return
        known = self._pending.get(hello.node.name) or meta.state.nodes.get(peer_id(hello.node.name))
        if hello.node.number and (known is None or known.number != hello.node.number):
            answer(problem=f"server {hello.node.name} was removed from the cluster, or lost its place in it")
            return
        is_same = known is not None and known.store_uuid == hello.node.store_uuid
        number = known.number if known is not None and is_same else self._next_number()
        self._write_down(replace(hello.node, number=number), lambda: answer(number))

    def _next_number(self) -> int:
        given = [node.number for node in self._pending.values()]
        return max([self._cluster.meta.state.next_number() - 1, *given]) + 1

    def _write_down(self, node: Node, done: Any) -> None:
        meta = self._cluster.meta
        if meta.state.nodes.get(node.peer) == node:
            done()
            return

        def applied(changed: bool) -> None:
            self._pending.pop(node.name, None)
            if meta.state.nodes.get(node.peer) == node:
                done()

        self._pending[node.name] = node
        try:
            meta.propose(NodeJoined(node=node), applied)
        except ApiError:
            self._pending.pop(node.name, None)  # it asks again

    def lead(self) -> None:
        """This server leads: it is one of the servers, too."""
        own = self._cluster.own
        self.current_at = max(self.current_at, 1)
        self._write_down(own, lambda: None)

    def _sweep(self) -> None:
        """Bring the members of the meta group nearer to the servers that there are, by one step."""
        cluster = self._cluster
        member, state = cluster.meta_member, cluster.meta.state
        if member is None:
            return
        status = member.status()
        voters, learners = status["voters"], status["learners"]
        present = {node_of(id): id for id in (*voters, *learners)}
        wanted = {node.number for node in state.nodes.values()}
        for number in sorted(wanted - set(present)):
            member.change([], [], [raft_id(number, 1)])
            return
        for id in learners:
            is_near = status["matched"].get(id, (0, False))[0] + NEAR_COUNT >= status["last"]
            alone = not any(node_of(other) == node_of(id) for other in voters)
            if alone and is_near and status["matched"][id][1] and node_of(id) in wanted:
                member.change([id], [], [])
                return
        gone = [id for number, id in present.items() if number not in wanted and number in state.numbers_used]
        if gone and member.raft_id not in gone:
            member.change([], gone[:1], [])
