"""The ledger on a live server: which batch each writer has written, or is writing, to a stream.

It is a stream of its own, JETLAKE_SPARK, with one message for each writer and target stream. An entry that is begun
says where the target stream ended then, and which run of the query began it: whoever writes the same batch again looks
for its own messages behind that place, however long ago that was. While a batch is written there is also a message for
each task, which says who is at it: the last attempt that came.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Literal, NamedTuple

import msgspec

from jetlake.table.errors import ServerError
from jetlake.table.nats import ApiRefused, Connection

STREAM = "JETLAKE_SPARK"
_PREFIX = "$JETLAKE.SPARK"
_NO_MESSAGE = 10037
_NO_STREAM = 10059
_WRONG_LAST_SEQ = (10071, 10164)


class ServerEntry(msgspec.Struct):
    """The last batch of a writer."""

    writer: str
    batch: int
    state: Literal["begun", "done"]
    start_seq: int = 0  # the last sequence of the stream before the batch
    run: str = ""


class Found(NamedTuple):
    """An entry and its revision; 0 where there is none."""

    entry: ServerEntry | None
    revision: int


class ServerLedger:
    """Entries of the writers to one stream."""

    def __init__(self, link: Connection, stream: str) -> None:
        self._link, self._stream = link, stream

    def ensure(self) -> None:
        """Make the ledger's stream if it is not there."""
        config = {
            "name": STREAM,
            "subjects": [f"{_PREFIX}.>"],
            "max_msgs_per_subject": 1,
            "storage": "file",
            "description": "which batches Spark has written, by query and stream",
        }
        try:
            self._link.api(f"STREAM.INFO.{STREAM}")
        except ApiRefused as error:
            if error.code != _NO_STREAM:
                raise
            self._link.api(f"STREAM.CREATE.{STREAM}", config)

    def get(self, writer: str) -> Found:
        """The entry of a writer."""
        try:
            answer = self._link.api(f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": self._subject(writer)})
        except ApiRefused as error:
            if error.code == _NO_MESSAGE:
                return Found(None, 0)
            raise
        message = answer["message"]
        return Found(msgspec.json.decode(base64.b64decode(message["data"]), type=ServerEntry), message["seq"])

    def put(self, entry: ServerEntry, revision: int) -> bool:
        """Record an entry in place of the revision that was found; False when someone else was faster."""
        headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % revision
        reply = self._link.request(self._subject(entry.writer), msgspec.json.encode(entry), headers)
        answer = json.loads(reply.payload)
        if "error" not in answer:
            return True
        if answer["error"].get("err_code") in _WRONG_LAST_SEQ:
            return False
        raise ServerError(f"{self._link.where}: the ledger refuses an entry: {answer['error'].get('description')}")

    def claim(self, writer: str, task: int, owner: str) -> None:
        """From now on a task is done by this attempt, and by no other."""
        answer = json.loads(self._link.request(f"{self._subject(writer)}.{task}", owner.encode()).payload)
        if "error" in answer:
            raise ServerError(f"{self._link.where}: the ledger refuses a claim: {answer['error'].get('description')}")

    def is_owner(self, writer: str, task: int, owner: str) -> bool:
        """Is this attempt still the last one?"""
        answer = self._link.api(f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": f"{self._subject(writer)}.{task}"})
        return base64.b64decode(answer["message"].get("data", "")) == owner.encode()

    def forget_tasks(self, writer: str) -> None:
        """Nobody works for this writer any more."""
        self._link.api(f"STREAM.PURGE.{STREAM}", {"filter": f"{self._subject(writer)}.*"})

    def _subject(self, writer: str) -> str:
        return f"{_PREFIX}.{self._stream}.{hashlib.blake2b(writer.encode(), digest_size=16).hexdigest()}"
