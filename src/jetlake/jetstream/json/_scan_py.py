"""Where the values of a JSON text begin and end: the reference twin of `_json_scan_c.pyx`. Import `scan`.

`scan` checks the syntax of one value and writes four words for each value and each key in it, in the order of the text:

    kind        OBJECT, ARRAY, STRING (ASCII without escapes), TEXT (any other string), NUMBER, TRUE, FALSE or NULL
    start, end  its bytes, quotes and brackets included
    next        the number of the first word group behind it and all that it contains

The pairs of an object are a key and a value in turn. Nothing is decoded: the cost is that of one pass over the bytes.
"""

from __future__ import annotations

from array import array

OBJECT, ARRAY, STRING, TEXT, NUMBER, TRUE, FALSE, NULL = range(8)
WORDS = 4

# What is wrong, if anything: at which byte, in the words of `syntax`.
OK, EOF, DEPTH, ESCAPE, IN_STRING, IN_NUMBER, NO_VALUE, NO_KEY, AFTER_KEY, AFTER_PAIR, AFTER_ELEMENT = range(11)
IN_LITERAL = 16  # and eight times the number of the word, and the place in it
LITERALS = (b"true", b"false", b"null")

_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF"


def scan(data: bytes, start: int, depth_max: int) -> tuple[array[int], int, int]:
    """The word groups of the value that begins at or after `start`, a status, and where it ends or the error is."""
    scanner = _Scanner(data, start, depth_max)
    try:
        scanner.value()
    except _Stop as stop:
        return scanner.found, stop.status, stop.offset
    return scanner.found, OK, scanner.at


class _Stop(Exception):
    def __init__(self, status: int, offset: int) -> None:
        self.status, self.offset = status, offset


class _Scanner:
    def __init__(self, data: bytes, start: int, depth_max: int) -> None:
        self.data, self.at, self.depth_max = data, start, depth_max
        self.found: array[int] = array("I")
        self.open: list[int] = []  # objects and arrays that are not over

    def value(self) -> None:
        """A value with all that it contains."""
        is_begun = self.begin()
        while not is_begun or self.open:
            if not is_begun:
                is_begun = self.begin()
            else:
                is_begun = self.goes_on()

    def begin(self) -> bool:
        """A value's first byte, or all of it; False when another value has to follow at once."""
        char = self.peek()
        start = self.at
        if char in b"{[":
            if len(self.open) >= self.depth_max:
                raise _Stop(DEPTH, start)
            self.open.append(len(self.found))
            self.add(OBJECT if char == b"{" else ARRAY, start)
            self.at += 1
            if self.peek() == (b"}" if char == b"{" else b"]"):
                self.close()
                return True
            if char == b"{":
                self.key()
            return False
        if char == b'"':
            self.string()
        elif char in b"tfn":
            self.literal(b"tfn".index(char))
        elif char == b"-" or char in _DIGITS:
            self.number()
        else:
            raise _Stop(NO_VALUE, start)
        return True

    def goes_on(self) -> bool:
        """What follows a value in the innermost object or array; False when that is another value."""
        is_object = self.found[self.open[-1]] == OBJECT
        char = self.peek()
        if char == (b"}" if is_object else b"]"):
            self.close()
            return True
        if char != b",":
            raise _Stop(AFTER_PAIR if is_object else AFTER_ELEMENT, self.at)
        self.at += 1
        if is_object:
            self.key()
        return False

    def key(self) -> None:
        if self.peek() != b'"':
            raise _Stop(NO_KEY, self.at)
        self.string()
        if self.peek() != b":":
            raise _Stop(AFTER_KEY, self.at)
        self.at += 1

    def close(self) -> None:
        self.at += 1
        place = self.open.pop()
        self.found[place + 2], self.found[place + 3] = self.at, len(self.found) // WORDS

    def string(self) -> None:
        start, is_plain = self.at, True
        self.at += 1
        while (char := self.byte()) != ord('"'):
            if char < 0x20:
                raise _Stop(IN_STRING, self.at)
            if char == ord("\\"):
                self.escape()
            is_plain = is_plain and char != ord("\\") and char < 0x80
            self.at += 1
        self.at += 1
        self.add(STRING if is_plain else TEXT, start)

    def escape(self) -> None:
        start = self.at
        self.at += 1
        char = self.byte()
        if char == ord("u"):
            for _ in range(4):
                self.at += 1
                if self.byte() not in _HEX:
                    raise _Stop(ESCAPE, start)
        elif char not in b'"\\/bfnrt':
            raise _Stop(ESCAPE, start)

    def literal(self, number: int) -> None:
        start = self.at
        for place, char in enumerate(LITERALS[number]):
            if self.byte() != char:
                raise _Stop(IN_LITERAL + 8 * number + place, self.at)
            self.at += 1
        self.add((TRUE, FALSE, NULL)[number], start)

    def number(self) -> None:
        start = self.at
        if self.data[start] == ord("-"):
            self.at += 1
        if self.byte() == ord("0"):
            self.at += 1
        else:
            self.digits()
        if self.data[self.at : self.at + 1] == b".":
            self.at += 1
            self.digits()
        if self.data[self.at : self.at + 1] in (b"e", b"E"):
            self.at += 1
            if self.byte() in b"+-":
                self.at += 1
            self.digits()
        self.add(NUMBER, start)

    def digits(self) -> None:
        """At least one."""
        if self.byte() not in _DIGITS:
            raise _Stop(IN_NUMBER, self.at)
        while self.at < len(self.data) and self.data[self.at] in _DIGITS:
            self.at += 1

    def add(self, kind: int, start: int) -> None:
        self.found.extend((kind, start, self.at, len(self.found) // WORDS + 1))

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise _Stop(EOF, self.at)
        return self.data[self.at]

    def peek(self) -> bytes:
        """The first byte that is no space."""
        while self.byte() in _SPACE:
            self.at += 1
        return self.data[self.at : self.at + 1]
