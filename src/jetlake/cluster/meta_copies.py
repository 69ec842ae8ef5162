"""Copies of the meta group's state, for servers that are new or too far behind for the log.

The state is small and seldom copied, so it goes as messages (`questions.py`), in parts. Each part says of how many it
is, and what the whole is to be installed with; a part that is missing makes the copy fail, and it is asked for anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from jetlake.cluster.member import Member
from jetlake.cluster.meta_codec import BadEntry
from jetlake.cluster.questions import Reply, parts_of

if TYPE_CHECKING:
    from jetlake.cluster.local import LocalCluster

PART_SIZE = 512 * 1024
WAIT_S = 5.0


class _Wanted(msgspec.Struct, frozen=True):
    node: int  # who is asked
    index: int  # that the copy must have at least


class _Part(msgspec.Struct, frozen=True):
    place: int
    count: int
    index: int
    term: int
    conf: bytes
    data: bytes


class MetaCopies:
    """Makes copies for others, and gets them: the `Copier` of the meta group."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        cluster.questions.serve("META", self._answer)

    def _answer(self, payload: bytes, reply: Reply) -> None:
        cluster, wanted = self._cluster, msgspec.msgpack.decode(payload, type=_Wanted)
        member = cluster.meta_member
        if wanted.node != cluster.identity.number or member is None or not member.is_open:
            return
        index, term, conf = member.position()
        if index < wanted.index:
            return
        parts = list(parts_of(cluster.meta.snapshot(), PART_SIZE))
        for place, data in enumerate(parts):
            reply(msgspec.msgpack.encode(_Part(place, len(parts), index, term, conf, data)))

    def copy(self, member: Member, source: int, index: int) -> None:
        """Get the state of a node."""
        found: dict[int, _Part] = {}

        def heard(payload: bytes) -> bool:
            part = msgspec.msgpack.decode(payload, type=_Part)
            if any(other.index != part.index for other in found.values()):
                found.clear()
            found[part.place] = part
            if len(found) < part.count:
                return False
            self._keep(member, part, b"".join(found[place].data for place in range(part.count)))
            return True

        payload = msgspec.msgpack.encode(_Wanted(source, index))
        self._cluster.questions.ask("META", payload, heard, member.copy_failed, WAIT_S)

    def _keep(self, member: Member, part: _Part, data: bytes) -> None:
        """Install a state once it is durable."""

        def kept() -> None:
            meta = self._cluster.meta
            if not member.is_open or not member.install(part.index, part.term, part.conf):
                return
            try:
                meta.install(part.index, data)
            except BadEntry as error:  # every server would say so, of its own state
                self._cluster.host.failed("copy of the meta group", error)

        self._cluster.keeper.write(part.index, data, kept)
