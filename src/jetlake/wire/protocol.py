"""What the tokenizer and the verb parser share: the verbs, why the tokenizer stops, and what a client is told.

A line is a verb, its arguments, and LF, with or without a CR before it. Verbs are of three styles:

    SPACED  a space or tab must follow, then the argument            PUB, HPUB, SUB, UNSUB, -ERR
    LOOSE   the argument follows, with or without space before it    CONNECT, INFO
    BARE    whatever follows on the line is ignored                  PING, PONG, +OK

The argument starts at the first byte that is not space or tab, and that byte is never taken for the line's end: so
does nats-server, where `SUB LF foo 1 LF` is one line. A verb is refused at its first wrong byte, before its line ends.
"""

from __future__ import annotations

from jetlake.errors import JetLakeError

SPACED, LOOSE, BARE = range(3)

# The kernels take verbs by their place here: PUB and HPUB come first.
VERBS: tuple[tuple[bytes, int], ...] = (
    (b"PUB", SPACED),
    (b"HPUB", SPACED),
    (b"PING", BARE),
    (b"PONG", BARE),
    (b"SUB", SPACED),
    (b"UNSUB", SPACED),
    (b"CONNECT", LOOSE),
    (b"INFO", LOOSE),
    (b"+OK", BARE),
    (b"-ERR", SPACED),
)
PUB, HPUB = 0, 1
PUB_ARGS_MIN, HPUB_ARGS_MIN = 2, 3  # one more with a reply subject
SIZE_DIGITS_MAX = 9  # a longer number is not read, and refused

# Why the tokenizer stopped.
NEED_MORE = 0  # the rest is the beginning of a line or message, or nothing
OTHER = 1  # a complete line of another verb is next
FULL = 2  # the array of operations is full
# From here on the connection closes: `ERROR_TEXTS` says with what words.
UNKNOWN_OPERATION = 3
TOO_LONG_LINE = 4
PAYLOAD_VIOLATION = 5
NO_CRLF = 6  # the payload is not followed by CRLF
BAD_ARGS = 7  # too few arguments, too many, or a CR or LF among them
BAD_SIZE = 8
BAD_HEADER_SIZE = 9  # not a number, or more than the total
NO_HEADERS = 10  # HPUB from a client that did not say headers:true

ERROR_TEXTS: dict[int, str | None] = {
    UNKNOWN_OPERATION: "Unknown Protocol Operation",
    TOO_LONG_LINE: "maximum control line exceeded",
    PAYLOAD_VIOLATION: "Maximum Payload Violation",
    NO_CRLF: "Unknown Protocol Operation",
    BAD_ARGS: None,
    BAD_SIZE: None,
    BAD_HEADER_SIZE: None,
    NO_HEADERS: None,
}

MAX_CONTROL_LINE = 4096
MAX_PAYLOAD = 1024 * 1024
NO_LIMIT = -1  # for max_payload


class ProtocolError(JetLakeError):
    """The peer broke the protocol: send -ERR with `text`, or nothing when it is None, and close."""

    def __init__(self, text: str | None, problem: str) -> None:
        super().__init__(f"{text or 'closed without a word'}: {problem}")
        self.text, self.problem = text, problem


def stop_error(reason: int) -> ProtocolError:
    """The error that a reason of the tokenizer stands for."""
    return ProtocolError(ERROR_TEXTS[reason], f"tokenizer stopped with reason {reason}")
