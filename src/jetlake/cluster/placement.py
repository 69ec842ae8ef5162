"""Which servers are to hold a stream: nats-server's rules, and its words where they find too few.

A server is out when it is in another cluster, was never heard of, is to be ignored, has the tag `!jetstream`, lacks a
tag that is asked for or has one that is excluded (`!tag`), has too little free storage, holds as many replicated
streams as it may, or shares the unique tag with one that is in. Of the others those are taken that are online, have the
most free storage and the fewest streams; for a replicated stream the number of replicated streams comes first.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jetlake.cluster.assignments import GroupPlan, Node, peer_id
from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import Storage, StreamConfig

EXCLUDED = "!jetstream"  # the tag of a server that is to hold no streams


class Candidate(NamedTuple):
    """A server of the cluster, and how it is."""

    node: Node
    is_online: bool = True
    is_known: bool = True  # whether it ever told how it is
    used_memory: int = 0  # bytes of messages
    used_store: int = 0
    reserved_memory: int = 0  # by the max_bytes of streams
    reserved_store: int = 0
    stream_count: int = 0
    ha_count: int = 0  # replicated streams
    leader_count: int = 0  # replicated streams that it should lead

    def available(self, storage: Storage) -> int:
        """The bytes that a stream may still take."""
        if storage is Storage.FILE:
            return max(self.node.max_store - max(self.used_store, self.reserved_store), 0)
        return max(self.node.max_memory - max(self.used_memory, self.reserved_memory), 0)


@dataclass
class Refusals:
    """Why servers were left out."""

    offline: bool = False
    exclude_tag: bool = False
    no_storage: bool = False
    not_unique: bool = False
    other: bool = False
    no_jetstream: bool = False
    missing_tags: set[str] = field(default_factory=set)
    excluded_tags: set[str] = field(default_factory=set)

    def error(self) -> ApiError:
        """What the client is told."""
        reasons = {
            "peer offline": self.offline,
            "exclude tag set": self.exclude_tag,
            "insufficient storage": self.no_storage,
            "server tag not unique": self.not_unique,
            "miscellaneous issue": self.other,
            "jetstream not enabled in cluster": self.no_jetstream,
            f"tags not matched {_shown(self.missing_tags)}": self.missing_tags,
            f"tags excluded {_shown(self.excluded_tags)}": self.excluded_tags,
        }
        texts = ["no suitable peers for placement", *(text for text, is_so in reasons.items() if is_so)]
        return errors.CLUSTER_NO_PEERS(", ".join(texts))


def _shown(tags: Iterable[str]) -> str:
    """Tags in brackets; nats-server gives them in no order."""
    return "[" + ", ".join(f"'{tag}'" for tag in sorted(tags)) + "]"


class Wish(NamedTuple):
    """What is asked of a stream's servers."""

    replicas: int
    cluster: str
    storage: Storage
    max_bytes: int = 0
    tags: tuple[str, ...] = ()
    unique_tag: str = ""  # a prefix: no two servers may have the same tag that begins with it


def wish_of(config: StreamConfig, cluster: str, unique_tag: str = "") -> Wish:
    """What a stream's configuration asks for; `cluster` is where it goes unless it says otherwise."""
    placement = config.placement
    tags = placement.tags if placement is not None else ()
    if any(tag.removeprefix("!").startswith(unique_tag) for tag in tags):
        unique_tag = ""  # who names such tags knows what they do
    wanted = (placement.cluster if placement is not None else "") or cluster
    return Wish(max(config.num_replicas, 1), wanted, config.storage, max(config.max_bytes, 0), tags, unique_tag)


def select_peers(
    wish: Wish,
    candidates: Sequence[Candidate],
    *,
    existing: Sequence[str] = (),
    leaving: Collection[str] = (),
    ignore: Collection[str] = (),
    chance: random.Random | None = None,
) -> tuple[str, ...]:
    """The peers to hold a stream, those that it has first. Raises ApiError 10005.

    `leaving` are existing peers that are to be replaced: their unique tags are free.
    """
    if len(existing) >= wish.replicas:
        return tuple(existing[: wish.replicas])
    refusals, owned = Refusals(no_jetstream=not candidates), set()
    for candidate in candidates:
        if wish.unique_tag and candidate.node.peer in existing and candidate.node.peer not in leaving:
            owned.add(_unique(candidate.node, wish.unique_tag))
    shuffled = list(candidates)
    (chance or random.SystemRandom()).shuffle(shuffled)  # so that equal servers take turns
    fit = []
    for candidate in shuffled:
        peer = candidate.node.peer
        if candidate.node.cluster != wish.cluster or peer in ignore or peer in existing:
            continue
        if _fits(wish, candidate, owned, refusals):
            fit.append(candidate)
    wanted = wish.replicas - len(existing)
    online = sum(candidate.is_online for candidate in fit) + len(existing)
    if len(fit) < wanted or online < wish.replicas // 2 + 1:
        refusals.offline |= len(fit) >= wanted
        raise refusals.error()
    fit.sort(key=lambda each: (not each.is_online, -each.available(wish.storage), each.stream_count))
    if wish.replicas > 1:
        fit.sort(key=lambda each: (not each.is_online, each.ha_count))
    return (*existing, *(each.node.peer for each in fit[:wanted]))


def _fits(wish: Wish, candidate: Candidate, owned: set[str], refusals: Refusals) -> bool:
    """Whether a server may hold the stream; if not, why not is added to the refusals."""
    node = candidate.node
    if not candidate.is_known:
        refusals.offline = True
    elif EXCLUDED in node.tags:
        refusals.exclude_tag = True
    elif not _has_tags(wish, node, refusals):
        pass
    elif wish.max_bytes > candidate.available(wish.storage):
        refusals.no_storage = True
    elif 0 < node.max_ha_assets <= candidate.ha_count:
        refusals.other = True
    elif wish.unique_tag and ((unique := _unique(node, wish.unique_tag)) in owned or not unique):
        refusals.not_unique = True
    else:
        if wish.unique_tag:
            owned.add(_unique(node, wish.unique_tag))
        return True
    return False


def _has_tags(wish: Wish, node: Node, refusals: Refusals) -> bool:
    """Whether a server has the tags that are asked for, in any case: its own are in lower case."""
    for tag in wish.tags:
        name = tag.removeprefix("!")
        if (name.lower() in node.tags) == (name != tag):
            (refusals.excluded_tags if name != tag else refusals.missing_tags).add(name)
            return False
    return True


def suits(wish: Wish, node: Node) -> bool:
    """Whether a server that holds a stream is where the stream is to be."""
    return node.cluster == wish.cluster and EXCLUDED not in node.tags and _has_tags(wish, node, Refusals())


def _unique(node: Node, prefix: str) -> str:
    """The tag that no other server may have; empty if it has none."""
    return next((tag for tag in node.tags if tag.startswith(prefix)), "")


# Groups


def plan_group(config: StreamConfig, peers: Sequence[str], cluster: str, candidates: Sequence[Candidate]) -> GroupPlan:
    """The group of a stream on these peers, with the one that should lead first."""
    return GroupPlan(
        name=group_name("S", len(peers), config.storage),
        peers=tuple(peers),
        storage=config.storage,
        cluster=cluster,
        preferred=preferred_peer(peers, {each.node.peer: each for each in candidates}),
    )


def group_name(kind: str, replicas: int, storage: Storage) -> str:
    """A new name for a group: S-R3F-1rLnj50M. `kind` is S for streams, C for consumers."""
    return f"{kind}-R{replicas}{storage.value[0].upper()}-{peer_id(secrets.token_hex(16))}"


def preferred_peer(peers: Sequence[str], candidates: Mapping[str, Candidate]) -> str:
    """The online peer that should lead the fewest groups; the first of equals."""
    online = [peer for peer in peers if peer in candidates and candidates[peer].is_online]
    return min(online, key=lambda peer: candidates[peer].leader_count) if online else peers[0]


def replace_peer(
    wish: Wish, peers: Sequence[str], leaving: str, candidates: Sequence[Candidate], chance: random.Random | None = None
) -> tuple[str, ...]:
    """The peers of a stream with another in place of one; raises ApiError 10075 when there is none."""
    staying = [peer for peer in peers if peer != leaving]
    try:
        return select_peers(wish, candidates, existing=staying, ignore=(leaving,), chance=chance)
    except ApiError as error:
        raise errors.PEER_REMAP() from error


def replace_peers(wish: Wish, staying: Sequence[str], candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """The peers of a stream that lost some: with others in their place, or as many as there are."""
    for replicas in range(wish.replicas, len(staying), -1):
        try:
            return select_peers(wish._replace(replicas=replicas), candidates, existing=staying)
        except ApiError:
            continue
    return tuple(staying)


# Leaders


def step_down_target(
    placement: StepDownPlacement, leader: str, peers: Sequence[str], candidates: Mapping[str, Candidate]
) -> str:
    """The peer that a leader should hand its office to; raises ApiError 10005."""
    if placement.preferred:
        named = [peer for peer in peers if peer in candidates and candidates[peer].node.name == placement.preferred]
        if leader in named:
            raise errors.CLUSTER_NO_PEERS(f'preferred server "{placement.preferred}" is already leader')
        if not named:
            raise errors.CLUSTER_NO_PEERS(f'preferred server "{placement.preferred}" not known')
        return named[0]
    for peer in peers:
        candidate = candidates.get(peer)
        if candidate is None or not candidate.is_online or peer == leader:
            continue
        if placement.cluster in ("", candidate.node.cluster) and {tag.lower() for tag in placement.tags} <= set(
            candidate.node.tags
        ):
            return peer
    raise errors.CLUSTER_NO_PEERS("no replacement peer connected")


class StepDownPlacement(NamedTuple):
    """Where a leader should move to."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""
