"""Which subscriptions does a message on this subject reach?

Subscriptions lie in a trie with one level per token. A node has its literal children in a dict, the child for `*`
beside them, and two leaves: the subscriptions whose subject ends at this node, and those whose subject ends in `>`
right below it. Inside a leaf, plain subscriptions and those of each queue group stand in the order they came, by
identity: subscriptions need not be hashable, and two equal ones are two.

A published subject is literal text, as for nats-server: `a.*` published reaches `a.*` and `a.>`, never `a.b`. A subject
with an empty token reaches nobody.

Results are cached by subject. Each change of the trie moves `generation` on, so that callers may keep a result for as
long as the number stays. A change of a literal subject drops that one entry of the cache. A change of a pattern whose
first token is literal drops the entries under that token, which can be the only ones it matches; a pattern that begins
with a wildcard drops all. So each entry is dropped once for the miss that made it: inboxes that come and go cost no
other subject its entry. The cache is bounded in entries and in the subscriptions they name, and is emptied when full.

Costs, with t tokens: match is one dict lookup when cached, else O(trie nodes that the subject touches, plus what it
finds); at most 2**t nodes, never more than there are nodes. insert and remove are O(t), plus the entries dropped.
overlapping is O(nodes touched), the whole subtree below a `>`. Nothing here recurses, so long subjects are safe.

Always true: a node other than the root holds a subscription or leads to one, so an empty index holds no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from jetlake.errors import BadSubject
from jetlake.subjects import decode_subject

CACHE_COUNT_MAX = 4096
CACHE_WEIGHT_MAX = 262_144  # subscriptions named by all cached results: 2 MiB of references


class Subscription(Protocol):
    """What the index asks of a subscription. Neither may change while it is in the index."""

    @property
    def subject(self) -> bytes: ...
    @property
    def queue(self) -> bytes | None: ...


SubT = TypeVar("SubT", bound=Subscription)


class Match(NamedTuple, Generic[SubT]):
    """Every plain subscription, and the members of each queue group: one of each gets the message."""

    plain: tuple[SubT, ...]
    queues: tuple[tuple[SubT, ...], ...]


class _Leaf(Generic[SubT]):
    """The subscriptions to one subject, by identity."""

    __slots__ = ("plain", "queues")

    def __init__(self) -> None:
        self.plain: dict[int, SubT] = {}
        self.queues: dict[bytes, dict[int, SubT]] = {}

    def add(self, sub: SubT) -> None:
        group = self.plain if sub.queue is None else self.queues.setdefault(sub.queue, {})
        group[id(sub)] = sub

    def remove(self, sub: SubT) -> None:
        if sub.queue is None:
            del self.plain[id(sub)]
            return
        group = self.queues[sub.queue]
        del group[id(sub)]
        if not group:
            del self.queues[sub.queue]

    def __iter__(self) -> Iterator[SubT]:
        yield from self.plain.values()
        for group in self.queues.values():
            yield from group.values()

    def __bool__(self) -> bool:
        return bool(self.plain or self.queues)


class _Node(Generic[SubT]):
    """One token of the trie. What a node does not need is None."""

    __slots__ = ("children", "here", "rest", "star")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[SubT]] | None = None
        self.star: _Node[SubT] | None = None
        self.here: _Leaf[SubT] | None = None  # subjects that end with this token
        self.rest: _Leaf[SubT] | None = None  # subjects that go on with `>`

    def child(self, token: bytes) -> _Node[SubT] | None:
        """The node of a pattern's token."""
        if token == b"*":
            return self.star
        return self.children.get(token) if self.children is not None else None

    def grow(self, token: bytes) -> _Node[SubT]:
        """The node of a pattern's token, made if it is not there."""
        if token == b"*":
            if self.star is None:
                self.star = _Node()
            return self.star
        if self.children is None:
            self.children = {}
        node = self.children.get(token)
        if node is None:
            node = self.children[token] = _Node()
        return node

    def grow_leaf(self, rest: bool) -> _Leaf[SubT]:
        """The leaf of subjects that end here, or go on with `>`; made if it is not there."""
        leaf = self.rest if rest else self.here
        if leaf is None:
            leaf = _Leaf()
            if rest:
                self.rest = leaf
            else:
                self.here = leaf
        return leaf

    def cut(self, token: bytes) -> None:
        """Forget the node of a pattern's token."""
        if token == b"*":
            self.star = None
            return
        assert self.children is not None
        del self.children[token]
        if not self.children:
            self.children = None

    def below(self) -> Iterator[_Node[SubT]]:
        """The nodes right below, whatever their token."""
        if self.children is not None:
            yield from self.children.values()
        if self.star is not None:
            yield self.star

    def __bool__(self) -> bool:
        return not (self.children is None and self.star is None and self.here is None and self.rest is None)


class Sublist(Generic[SubT]):
    """An index of subscriptions by subject."""

    def __init__(self, cache_count_max: int = CACHE_COUNT_MAX, cache_weight_max: int = CACHE_WEIGHT_MAX) -> None:
        self.generation = 0
        self._subs: dict[int, SubT] = {}  # all of them, by identity
        self._root: _Node[SubT] = _Node()
        self._empty: Match[SubT] = Match((), ())
        self._cache: dict[bytes, Match[SubT]] = {}
        self._cached_under: dict[bytes, dict[bytes, int]] = {}  # first token: cached subjects and their weights
        self._cached_weight = 0
        self._cache_count_max, self._cache_weight_max = cache_count_max, cache_weight_max

    @property
    def count(self) -> int:
        return len(self._subs)

    def match(self, subject: bytes) -> Match[SubT]:
        """The subscriptions that a message on this subject reaches."""
        found = self._cache.get(subject)
        return found if found is not None else self._match(subject)

    def has_interest(self, subject: bytes) -> bool:
        """True when a message on this subject reaches anybody."""
        found = self._cache.get(subject)
        if found is not None:
            return found is not self._empty
        return bool(self._leaves(subject.split(b".")))  # not cached: it is asked of replies, each of them once

    def overlapping(self, pattern: bytes) -> tuple[SubT, ...]:
        """The subscriptions that share at least one subject with this pattern."""
        nodes: list[_Node[SubT]] = [self._root]
        found: list[_Leaf[SubT]] = []
        for token in _pattern_tokens(pattern):
            if token == b">":
                return tuple(sub for leaf in [*found, *_leaves_below(nodes)] for sub in leaf)
            found += [node.rest for node in nodes if node.rest is not None]
            if token == b"*":
                nodes = [below for node in nodes for below in node.below()]
            else:
                nodes = [below for node in nodes for below in (node.child(token), node.star) if below is not None]
        found += [node.here for node in nodes if node.here is not None]
        return tuple(sub for leaf in found for sub in leaf)

    def insert(self, sub: SubT) -> bool:
        """Add a subscription; False when it was in already. Raises BadSubject."""
        if id(sub) in self._subs:
            return False
        tokens = _pattern_tokens(sub.subject)
        steps, rest = _steps(tokens)
        node = self._root
        for token in steps:
            node = node.grow(token)
        node.grow_leaf(rest).add(sub)
        self._subs[id(sub)] = sub
        self._changed(sub.subject, tokens)
        return True

    def remove(self, sub: SubT) -> bool:
        """Take a subscription out; False when it was not in."""
        if id(sub) not in self._subs:
            return False
        tokens = sub.subject.split(b".")
        self._take_out(sub, tokens)
        self._changed(sub.subject, tokens)
        return True

    def remove_all(self, subs: Sequence[SubT]) -> None:
        """Take many subscriptions out, which are all in; the cache is dropped once for all of them."""
        if len(subs) == len(self._subs):  # as when the one large stream of an account goes
            self._subs, self._root = {}, _Node()
        else:
            for sub in subs:
                self._take_out(sub, sub.subject.split(b"."))
        self.generation += 1
        self._forget_all()

    def _take_out(self, sub: SubT, tokens: list[bytes]) -> None:
        del self._subs[id(sub)]
        steps, rest = _steps(tokens)
        path: list[_Node[SubT]] = [self._root]
        for token in steps:
            node = path[-1].child(token)
            assert node is not None, "what is in the index has its nodes"
            path.append(node)
        leaf = path[-1].rest if rest else path[-1].here
        assert leaf is not None
        leaf.remove(sub)
        if not leaf:
            _prune(path, steps, rest)

    def __len__(self) -> int:
        return len(self._subs)

    def __bool__(self) -> bool:
        return True  # an empty index is an index

    def __iter__(self) -> Iterator[SubT]:
        """All subscriptions, as they are now: changes made meanwhile are safe, and not seen."""
        return iter(list(self._subs.values()))

    def _match(self, subject: bytes) -> Match[SubT]:
        tokens = subject.split(b".")
        leaves = self._leaves(tokens)
        found = _merge(leaves) if leaves else self._empty
        weight = 1 + len(found.plain) + sum(map(len, found.queues))
        if weight <= self._cache_weight_max and self._cache_count_max > 0:
            self._remember(subject, tokens[0], found, weight)
        return found

    def _leaves(self, tokens: list[bytes]) -> list[_Leaf[SubT]]:
        """The leaves that a literal subject reaches; none of them is empty."""
        found: list[_Leaf[SubT]] = []
        if b"" in tokens:
            return found
        nodes = [self._root]
        for token in tokens:
            below: list[_Node[SubT]] = []
            for node in nodes:
                if node.rest is not None:
                    found.append(node.rest)
                if node.children is not None and (child := node.children.get(token)) is not None:
                    below.append(child)
                if node.star is not None:
                    below.append(node.star)
            if not below:
                return found
            nodes = below
        found += [node.here for node in nodes if node.here is not None]
        return found

    def _remember(self, subject: bytes, first: bytes, found: Match[SubT], weight: int) -> None:
        if len(self._cache) >= self._cache_count_max or self._cached_weight + weight > self._cache_weight_max:
            self._forget_all()
        self._cache[subject] = found
        self._cached_under.setdefault(first, {})[subject] = weight
        self._cached_weight += weight

    def _changed(self, subject: bytes, tokens: list[bytes]) -> None:
        """Count a change, and drop from the cache what it can have changed."""
        self.generation += 1
        if not self._subs or tokens[0] in (b"*", b">"):
            self._forget_all()
        elif b"*" in tokens or tokens[-1] == b">":
            self._forget_under(tokens[0])
        elif subject in self._cache:
            self._forget(subject, tokens[0])

    def _forget(self, subject: bytes, first: bytes) -> None:
        del self._cache[subject]
        weights = self._cached_under[first]
        self._cached_weight -= weights.pop(subject)
        if not weights:
            del self._cached_under[first]

    def _forget_under(self, first: bytes) -> None:
        for subject, weight in self._cached_under.pop(first, {}).items():
            del self._cache[subject]
            self._cached_weight -= weight

    def _forget_all(self) -> None:
        self._cache.clear()
        self._cached_under.clear()
        self._cached_weight = 0


def _pattern_tokens(pattern: bytes) -> list[bytes]:
    tokens = pattern.split(b".")
    if b"" in tokens:
        raise BadSubject(decode_subject(pattern), "has an empty token" if pattern else "is empty")
    if b">" in tokens[:-1]:
        raise BadSubject(decode_subject(pattern), "'>' must be the last token")
    return tokens


def _steps(tokens: list[bytes]) -> tuple[list[bytes], bool]:
    """The tokens that have nodes, and whether `>` follows them."""
    return (tokens[:-1], True) if tokens[-1] == b">" else (tokens, False)


def _prune(path: list[_Node[SubT]], steps: list[bytes], rest: bool) -> None:
    """Forget an empty leaf at the end of a path, and every node that only led to it."""
    if rest:
        path[-1].rest = None
    else:
        path[-1].here = None
    for parent, token, node in zip(reversed(path[:-1]), reversed(steps), reversed(path[1:]), strict=True):
        if node:
            return
        parent.cut(token)


def _leaves_below(nodes: Iterable[_Node[SubT]]) -> Iterator[_Leaf[SubT]]:
    """The leaves of all subjects that go on below these nodes."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.rest is not None:
            yield node.rest
        for below in node.below():
            if below.here is not None:
                yield below.here
            waiting.append(below)


def _merge(leaves: list[_Leaf[SubT]]) -> Match[SubT]:
    """The subscriptions of some leaves: a queue group is one group whatever its members subscribed to."""
    plain: list[SubT] = []
    queues: dict[bytes, list[SubT]] = {}
    for leaf in leaves:
        plain += leaf.plain.values()
        for queue, group in leaf.queues.items():
            queues.setdefault(queue, []).extend(group.values())
    return Match(tuple(plain), tuple(map(tuple, queues.values())))
