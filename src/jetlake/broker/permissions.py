"""What a user may publish and subscribe to, by nats-server's rules.

`Permissions` are a user's, shared by all of their connections, and never change. `ReplyPermits` are a connection's:
with `allow_responses`, a message that was delivered with a reply subject lets that connection answer it, a few times
and for a while.

The rules, each seen in nats-server 2.15.1:
- No allow list, or an empty one, allows everything. With allow_responses it allows nothing but the responses.
- Deny wins over allow. It does not win over a response: who was asked may answer, even on a denied subject.
- Publishing to `a.*` is publishing to that literal text: it needs an entry such as `a.*` or `a.>`.
- A subscription needs an allowed subject that covers it. A deny that covers it refuses it; a deny of less than it asks
  for lets it stand, and the denied messages are not delivered.
- A subscribe entry may be "subject queue", and the queue may be a pattern. It says nothing about plain subscriptions.
  In the allow list it closes the subject to all other queue groups, even where a plain entry allows it.
- Asking twice with the same reply subject uses up one of the permitted responses: nats-server looks whether the reply
  is permitted by using the permit.

In one case we are stricter: nats-server lets `allow: a.*` cover a subscription to `a.>`, which then receives `a.b.c`.
Here it is refused. (`deny: a.*` refuses `a.>` there and here.)

Always true: what `may_subscribe` let pass and `may_deliver` lets pass is allowed and not denied.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from jetlake.broker.recipient_table import FIRST_RECIPIENTS, NOBODY, UNKNOWN, RecipientTable
from jetlake.broker.sublist import Match, Sublist
from jetlake.clock import SECOND_NS
from jetlake.errors import BadSubject
from jetlake.ops import OP_WORDS
from jetlake.subjects import check_filter, decode_subject, encode_subject, is_subset

RESPONSES_MAX_DEFAULT = 1
RESPONSES_EXPIRES_NS_DEFAULT = 120 * SECOND_NS
_ALLOWED = FIRST_RECIPIENTS
_PATTERNS_MAX = 256  # more than these are not looked through for each new subject
_PUBLISHED_MAX = 16_384  # subjects of which it is remembered whether they are allowed, for each user
REPLY_PERMITS_MAX = 65_536  # per connection; the oldest goes first


Buffer = bytes | bytearray


class ResponsePermission(NamedTuple):
    """How often, and for how long, a message's reply subject may be published to. Negative is without end."""

    max: int = RESPONSES_MAX_DEFAULT
    expires_ns: int = RESPONSES_EXPIRES_NS_DEFAULT


class _Entry(NamedTuple):
    subject: bytes
    queue: bytes | None


_Entries = Sublist[_Entry]


class Permissions:
    """The rules of one user."""

    def __init__(
        self,
        publish_allow: Iterable[str] = (),
        publish_deny: Iterable[str] = (),
        subscribe_allow: Iterable[str] = (),
        subscribe_deny: Iterable[str] = (),
        responses: ResponsePermission | None = None,
    ) -> None:
        """Raises BadSubject for an entry that is none."""
        self.publish_allow, self.publish_deny = tuple(publish_allow), tuple(publish_deny)
        self.subscribe_allow, self.subscribe_deny = tuple(subscribe_allow), tuple(subscribe_deny)
        self.responses = responses
        self._publish_table: RecipientTable | None = None  # made when the user first publishes
        self._publish_allow = _entries(self.publish_allow, queues=False, keep_empty=responses is not None)
        self._publish_deny = _entries(self.publish_deny, queues=False)
        self._subscribe_allow = _entries(self.subscribe_allow, queues=True)
        self._subscribe_deny = _entries(self.subscribe_deny, queues=True)

    def may_publish(self, subject: bytes) -> bool:
        """True when the lists allow it; a reply permit may allow it still."""
        if self._publish_allow is not None and not self._publish_allow.match(subject).plain:
            return False
        return self._publish_deny is None or not self._publish_deny.match(subject).plain

    def publish_run(self, data: Buffer, ops: array[int], first: int, stop: int) -> tuple[int, bool]:
        """Whether the lists allow publish `first` of a batch, and the first one of which that may not be true."""
        table = self._publish_table
        if table is None:
            table = self._publish_table = self._make_table()
        end, found = table.run(data, ops, first, stop)
        if found != UNKNOWN:
            return end, found == _ALLOWED
        start, size = ops[first * OP_WORDS : first * OP_WORDS + 2]
        subject = bytes(memoryview(data)[start : start + size])
        may = self.may_publish(subject)
        table.put(subject, _ALLOWED if may else NOBODY)
        return first + 1, may

    def _make_table(self) -> RecipientTable:
        """Subjects that are allowed are as those of a stream; those that may be denied are looked at one by one."""
        table = RecipientTable(_PUBLISHED_MAX)
        allowed = [b">"] if self._publish_allow is None else [entry.subject for entry in self._publish_allow]
        denied = [] if self._publish_deny is None else [entry.subject for entry in self._publish_deny]
        if len(allowed) + len(denied) <= _PATTERNS_MAX:
            table.clear([(allowed, _ALLOWED)] if allowed else [], denied)
        return table

    def may_subscribe(self, subject: bytes, queue: bytes | None = None) -> bool:
        """True when the subscription may stand; see `filters` for what it may receive."""
        if self._subscribe_allow is not None:
            found = _covering(subject, self._subscribe_allow.match(subject))
            allowed = bool(found.plain)
            if queue is not None and found.queues:
                allowed = _names(found, queue)
            if not allowed:
                return False
        return self.may_deliver(subject, queue)

    def may_deliver(self, subject: bytes, queue: bytes | None = None) -> bool:
        """True when a message on this subject may be delivered to a subscription (of this queue group)."""
        if self._subscribe_deny is None:
            return True
        found = self._subscribe_deny.match(subject)
        return not (found.plain or (queue is not None and _names(found, queue)))

    def filters(self, subject: bytes) -> bool:
        """True when some deliveries of a subscription to this subject may be denied: ask `may_deliver` for each."""
        return self._subscribe_deny is not None and bool(self._subscribe_deny.overlapping(subject))


class ReplyPermits:
    """The reply subjects that one connection may answer on. The caller passes the time in, and it never goes back."""

    def __init__(self, permissions: Permissions, count_max: int = REPLY_PERMITS_MAX) -> None:
        self._permissions, self._count_max = permissions, count_max
        self._permits: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # reply: since when, times used

    def __len__(self) -> int:
        return len(self._permits)

    def may_publish(self, subject: bytes, now_ns: int) -> bool:
        """True when the connection may publish to this subject now. Uses the permit if it takes one."""
        return self._permissions.may_publish(subject) or self._use(subject, now_ns)

    def delivered(self, reply: bytes, now_ns: int) -> None:
        """A message with this reply subject went to the connection: it may answer."""
        responses = self._permissions.responses
        if responses is None or self.may_publish(reply, now_ns):
            return
        self._permits[reply] = (now_ns, 0)
        self._drop_old(responses, now_ns)

    def _use(self, subject: bytes, now_ns: int) -> bool:
        responses, permit = self._permissions.responses, self._permits.get(subject)
        if responses is None or permit is None:
            return False
        since_ns, used = permit
        spent = used >= responses.max > 0
        if spent or _is_over(responses, since_ns, now_ns):
            del self._permits[subject]
            return False
        self._permits[subject] = (since_ns, used + 1)
        return True

    def _drop_old(self, responses: ResponsePermission, now_ns: int) -> None:
        """Permits lie in the order of their time, so the oldest is the first to go."""
        while self._permits:
            since_ns, _ = next(iter(self._permits.values()))
            if len(self._permits) <= self._count_max and not _is_over(responses, since_ns, now_ns):
                return
            self._permits.popitem(last=False)


def publish_violation(subject: bytes) -> str:
    """The -ERR text for a publish that is not permitted."""
    return f"Permissions Violation for Publish to {go_quoted(subject)}"


def reply_violation(reply: bytes) -> str:
    """The -ERR text for a publish with a reply subject that belongs to the server."""
    return f"Permissions Violation for Publish with Reply of {go_quoted(reply)}"


def subscribe_violation(subject: bytes, queue: bytes | None = None) -> str:
    """The -ERR text for a subscription that is not permitted."""
    using = f" using queue {go_quoted(queue)}" if queue is not None else ""
    return f"Permissions Violation for Subscription to {go_quoted(subject)}{using}"


def _is_over(responses: ResponsePermission, since_ns: int, now_ns: int) -> bool:
    return now_ns - since_ns > responses.expires_ns > 0


def _entries(texts: tuple[str, ...], *, queues: bool, keep_empty: bool = False) -> _Entries | None:
    """The index of a list, or None for a list that says nothing."""
    if not texts and not keep_empty:
        return None
    entries: _Entries = Sublist()
    for text in texts:
        entries.insert(_entry(text, queues))
    return entries


def _entry(text: str, queues: bool) -> _Entry:
    subject, *rest = (text.split() or [text]) if queues else [text]
    if len(rest) > 1:
        raise BadSubject(text, "is neither a subject nor a subject and a queue")
    for part in (subject, *rest):
        check_filter(part)
    return _Entry(encode_subject(subject), encode_subject(rest[0]) if rest else None)


def _covering(subject: bytes, found: Match[_Entry]) -> Match[_Entry]:
    """Of the entries that match a subscription's subject as literal text, those that cover all it stands for."""
    if not subject.endswith(b">"):
        return found
    text = decode_subject(subject)

    def covering(entries: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
        return tuple(entry for entry in entries if is_subset(text, decode_subject(entry.subject)))

    groups = map(covering, found.queues)
    return Match(covering(found.plain), tuple(group for group in groups if group))


def _names(found: Match[_Entry], queue: bytes) -> bool:
    """True when a "subject queue" entry names this queue, itself or by a pattern."""
    names = [group[0].queue for group in found.queues]
    return any(name == queue or is_subset(decode_subject(queue), decode_subject(name)) for name in names if name)


_GO_ESCAPES = {char: f"\\{name}" for char, name in zip('"\\\a\b\f\n\r\t\v', '"\\abfnrtv', strict=True)}


def go_quoted(text: bytes) -> str:
    """Text as Go's %q prints it."""
    return '"' + "".join(map(_go_char, decode_subject(text))) + '"'


def _go_char(char: str) -> str:
    code = ord(char)
    if char in _GO_ESCAPES:
        return _GO_ESCAPES[char]
    if char.isprintable():
        return char
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
