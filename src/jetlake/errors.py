"""Every error that JetLake raises on purpose.

JetLakeError
├── StoreError              something about stored data
│   ├── CorruptBlock        bytes on disk are not what was written: the disk's fault
│   ├── WrongKey            the key does not open this file; nothing was touched
│   ├── StoreLocked         another process has this directory open
│   ├── StoreClosed         the store was stopped or deleted
│   ├── StoreFrozen         a write or sync failed: what is on disk is unknown until the store is opened again
│   ├── LimitExceeded       discard=new refused a message
│   ├── MigrationError      a legacy file cannot be read
│   └── TooManyResults      a bounded query matched more than it may return
├── BadRequest              an argument that no store can take (a ValueError too)
│   ├── BadSubject
│   └── MessageTooLarge
├── MessageNotFound         no message at that sequence or subject (a LookupError too)
├── ProtocolError           the peer broke the NATS protocol           (wire.protocol)
├── ConfigError             a configuration file or flag is wrong      (config.value)
├── BadNkey, BadJwt         keys and tokens that are none              (nkeys, jwt)
└── BadTransform, BcryptMissing                                        (broker)

Errors carry fields, and build their message from them: what was expected, what was found, where.
"""

from __future__ import annotations


class JetLakeError(Exception):
    """The root of the family."""


class StoreError(JetLakeError):
    """Something about stored data."""


class CorruptBlock(StoreError):
    """Bytes on disk are not what was written."""

    def __init__(self, path: str, offset: int, problem: str) -> None:
        super().__init__(f"{path}: at offset {offset}: {problem}")
        self.path, self.offset, self.problem = path, offset, problem


class WrongKey(StoreError):
    """The key given does not open this file."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class StoreLocked(StoreError):
    """Another process has this directory open."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: in use by another process")
        self.path = path


class StoreClosed(StoreError):
    """The store was stopped or deleted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: store is closed")
        self.name = name


class StoreFrozen(StoreError):
    """A write or sync failed, so writes are refused until the store is opened again."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(f"{name}: frozen for writes after: {cause}")
        self.name, self.cause = name, cause


class LimitExceeded(StoreError):
    """discard=new refused a message. `limit` is "messages", "bytes" or "messages per subject"."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"maximum {limit} exceeded")
        self.limit = limit


class MigrationError(StoreError):
    """A legacy file cannot be read."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}: line {line}: {problem}")
        self.path, self.line, self.problem = path, line, problem


class TooManyResults(StoreError):
    """A bounded query matched more than it may return."""

    def __init__(self, count_max: int) -> None:
        super().__init__(f"more than {count_max} results")
        self.count_max = count_max


class BadRequest(JetLakeError, ValueError):
    """An argument that no store can take."""


class BadSubject(BadRequest):
    """A subject or filter that is not one."""

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(f"subject {subject!r}: {problem}")
        self.subject, self.problem = subject, problem


class MessageTooLarge(BadRequest):
    """A part of a message exceeds what a record can hold."""

    def __init__(self, part: str, size: int, size_max: int) -> None:
        super().__init__(f"{part} of {size} bytes exceeds {size_max}")
        self.part, self.size, self.size_max = part, size, size_max


class MessageNotFound(JetLakeError, LookupError):
    """No message at that sequence or subject."""

    def __init__(self, what: str) -> None:
        super().__init__(f"no message found: {what}")
        self.what = what


class ReloadRefused(JetLakeError):
    """A change of the configuration that takes a restart."""

    def __init__(self, field: str, old: object, new: object) -> None:
        super().__init__(f"config reload not supported for {field}: {old=!s}, {new=!s}")
