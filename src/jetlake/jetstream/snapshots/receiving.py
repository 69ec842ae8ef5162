"""A restore: chunks of a snapshot come as requests, and when all are there the stream is.

Decoding and writing are done in a thread. A chunk is answered as soon as it is queued, unless too much waits. The
stream is a draft meanwhile (`draft.py`), which nobody sees: a restore that fails or is given up leaves nothing behind.
What goes wrong is told when the client says that it has sent everything, as in nats-server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.clock import SECOND_NS
from jetlake.errors import JetLakeError
from jetlake.jetstream import errors
from jetlake.jetstream.advisories import new_id, send_advisory, stream_action
from jetlake.jetstream.api.stream_info import stream_info
from jetlake.jetstream.consumers.config import ConsumerConfig
from jetlake.jetstream.consumers.registry import adopt_consumers, ceilings_of, recover_consumers
from jetlake.jetstream.consumers.rules import check_config as check_consumer
from jetlake.jetstream.consumers.rules import check_work_queue
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Timer
from jetlake.jetstream.snapshots.draft import Draft, MemoryDraft, StreamDraft
from jetlake.jetstream.snapshots.restore_archive import ArchiveReader, RestoreError, Rules
from jetlake.jetstream.snapshots.restore_tar import TarReader
from jetlake.jetstream.snapshots.work import Work
from jetlake.jetstream.streams.config import Retention, Storage, StreamConfig, limits, with_level
from jetlake.jetstream.streams.meta import MSGS_NAME, stream_directory, tomb_directory
from jetlake.jetstream.streams.stream import open_store
from jetlake.store import FileStore, MemStore
from jetlake.store.nats.archive import MAGIC
from jetlake.store.nats.s2 import BadCrc, BadS2, Decoder
from jetlake.subjects import encode_subject
from jetlake.wire.go_time import format_time
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.subscription import Msg
    from jetlake.jetstream.js_account import JsAccount
    from jetlake.jetstream.streams.stream import Stream

_IDLE_NS = 5 * SECOND_NS
_QUEUE_SIZE_MAX = 8 * 1024 * 1024  # of chunks that wait to be written; beyond, they are answered when they are
_TYPE = "io.nats.jetstream.api.v1.stream_create_response"


class Receiver:
    """From chunks to a draft; all of it runs in a thread, one call at a time."""

    def __init__(self, js: JsAccount, config: StreamConfig) -> None:
        self._js, self._config, self._now_ns = js, config, js.host.clock()
        self._room = js.left(config.storage)
        self._decoder = Decoder()
        self._start = bytearray()  # until it is known what comes
        self._reader: ArchiveReader | TarReader | None = None

    @property
    def draft(self) -> Draft | None:
        return self._reader.draft if self._reader is not None else None

    def feed(self, chunks: list[bytes]) -> None:
        """Take chunks; raises RestoreError, ApiError, OSError or JetLakeError."""
        try:
            for chunk in chunks:
                for plain in self._decoder.feed(chunk):
                    self._take(plain)
        except BadS2 as error:
            raise _s2_error(error) from None

    def _take(self, plain: bytes | bytearray) -> None:
        if self._reader is None:
            self._start += plain
            if len(self._start) < len(MAGIC):
                return
            plain, self._start = self._start, bytearray()
            self._reader = self._tar() if plain[: len(MAGIC)] != MAGIC else ArchiveReader(self._rules())
        self._reader.feed(plain)

    def finish(self) -> None:
        """Everything was sent: check, and make the draft durable."""
        try:
            self._decoder.finish()
        except BadS2 as error:
            raise _s2_error(error) from None
        if self._reader is None:
            raise RestoreError("archive/tar: invalid tar header" if self._start else "EOF")
        self._reader.finish()
        assert self.draft is not None
        self.draft.seal(self._reader.last_seq)
        self._close_reader()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._close_reader()
        if self.draft is not None:
            self.draft.abandon()

    def _close_reader(self) -> None:
        if isinstance(self._reader, TarReader):
            self._reader.close()

    def _tar(self) -> TarReader:
        js = self._js
        return TarReader(self._rules(), js.files, tomb_directory(js.directory), js.account.name, self._config.name)

    def _rules(self) -> Rules:
        config, options = self._config, self._js.host.options
        limits = (config.max_msg_size, options.max_payload, config.first_seq)
        return Rules(self._make, self._check_consumer, self._check_size, *limits, self._now_ns)

    def _make(self, created_ns: int, first_seq: int) -> Draft:
        js, config = self._js, self._config
        if config.storage is Storage.MEMORY:
            return MemoryDraft(config, created_ns, first_seq=first_seq, clock=js.host.clock)
        js.encryption.check()
        js.files.make_dirs(js.directory)
        return StreamDraft(
            js.directory,
            config,
            created_ns,
            first_seq=first_seq,
            options=js.encryption.file_options(config),
            sealer=js.encryption.sealer,
            files=js.files,
            clock=js.host.clock,
        )

    def _check_consumer(self, config: ConsumerConfig, others: list[ConsumerConfig]) -> None:
        check_consumer(config, self._config, ceilings_of(self._js))
        if self._config.retention is Retention.WORKQUEUE:
            check_work_queue(config, others)

    def _check_size(self, size: int) -> None:
        if size > self._room:
            is_file = self._config.storage is Storage.FILE
            raise (errors.STORAGE_RESOURCES_EXCEEDED if is_file else errors.MEMORY_RESOURCES_EXCEEDED)()


def _s2_error(error: BadS2) -> RestoreError:
    return RestoreError("s2: corrupt input, crc mismatch" if isinstance(error, BadCrc) else "s2: corrupt input")


class Receiving:
    """One restore, as the loop sees it."""

    def __init__(self, js: JsAccount, config: StreamConfig, client: Any) -> None:
        """`config` passed the rules of a new stream."""
        self._js, self._host, self._account = js, js.host, js.account
        self._config, self._client = with_level(config), client
        self._receiver = Receiver(js, self._config)
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{new_id()}"
        self._queue: list[tuple[bytes, bytes]] = []  # chunks, and replies that wait for them to be written
        self._queue_size = self._received = 0
        self._end_reply = b""
        self._error: ApiError | None = None
        self._is_working = self._is_over = False
        self._timer: Timer | None = None
        self._start_ns = self._host.clock()

    def begin(self) -> None:
        """Take chunks from now on."""
        self._sub = self._account.subscribe(encode_subject(self.subject), self._chunk)
        self._tell("CREATE", "restore_create", {})
        self._restart_timer()

    def _chunk(self, msg: Msg) -> None:
        if self._is_over or self._end_reply:
            return
        if not msg.reply:
            self._give_up()
            return
        self._restart_timer()
        if not msg.payload:
            self._cancel_timer()
            self._end_reply = msg.reply
        elif self._error is not None:
            self._account.send(msg.reply)
        else:
            self._received += len(msg.payload)
            self._queue_size += len(msg.payload)
            is_full = self._queue_size > _QUEUE_SIZE_MAX
            self._queue.append((msg.payload, msg.reply if is_full else b""))
            if not is_full:
                self._account.send(msg.reply)
        self._work()

    def _work(self) -> None:
        """Do what is to be done next."""
        if self._is_working or self._is_over:
            return
        if self._queue:
            taken, self._queue = self._queue, []
            self._run(lambda: self._receiver.feed([chunk for chunk, _ in taken]), lambda: self._taken(taken))
        elif self._end_reply:
            if self._error is not None:
                self._end_with_error()
            else:
                self._run(self._receiver.finish, self._place)

    def _run(self, run: Any, done: Any) -> None:
        self._is_working = True

        def finished(result: Any) -> None:
            self._is_working = False
            done()

        def failed(error: BaseException) -> None:
            self._is_working = False
            self._fail(error)

        Work(self._host, run, finished, failed)

    def _taken(self, taken: list[tuple[bytes, bytes]]) -> None:
        self._queue_size -= sum(len(chunk) for chunk, _ in taken)
        self._answer(taken)
        self._work()

    def _answer(self, taken: list[tuple[bytes, bytes]]) -> None:
        for _, reply in taken:
            if reply:
                self._restart_timer()
                self._account.send(reply)

    def _fail(self, error: BaseException) -> None:
        """It cannot be restored; chunks are still answered, and the error comes at the end."""
        self._error = self._describe(error)
        self._answer(self._queue)
        self._queue, self._queue_size = [], 0
        self._work()

    def _describe(self, error: BaseException) -> ApiError:
        if isinstance(error, ApiError):
            return error
        if isinstance(error, RestoreError):
            return errors.STREAM_RESTORE(str(error))
        self._host.log("error", f"restore failed stream={self._config.name} error={error}")
        is_known = isinstance(error, OSError | JetLakeError)
        return errors.STREAM_RESTORE(errors.reason(error) if is_known else "internal error")

    def _place(self) -> None:
        """The draft is durable: make it the stream, if that may be."""
        draft = self._receiver.draft
        assert draft is not None
        try:
            self._js.reserve(self._config)
        except ApiError as error:
            if error.err_code != errors.STREAM_NAME_EXIST_RESTORE_FAILED().err_code:
                text = f"error adding stream: {error.description} ({error.err_code})"
                error = errors.STREAM_RESTORE(text)
            self._fail(error)
            return

        opened: list[MemStore | FileStore] = []

        def run() -> None:
            draft.place()
            if isinstance(draft, MemoryDraft):
                draft.store.update(limits(self._config))
                opened.append(draft.store)
            else:
                directory = f"{stream_directory(self._js.directory, self._config.name)}/{MSGS_NAME}"
                opened.append(open_store(self._js, self._config, directory))

        self._run(run, lambda: self._open(draft, opened[0]))

    def _open(self, draft: Draft, store: MemStore | FileStore) -> None:
        self._js.restoring.discard(self._config.name)
        is_memory = isinstance(draft, MemoryDraft)

        def recover(stream: Stream) -> None:
            adopt_consumers(stream, [each for each in draft.consumers if is_memory or each.is_in_memory])
            recover_consumers(stream)

        try:
            stream = self._js.open_stream(self._config, draft.created_ns, recover, at_once=False, store=store)
        except (OSError, JetLakeError) as error:
            self._error = self._describe(error)
            self._end_with_error()
            return
        stream_action(self._account, self._host, self._config.name, "create")
        stream.when_open(lambda: self._end(stream_info(stream, with_server=False)))

    def _end_with_error(self) -> None:
        assert self._error is not None
        fields: dict[str, Any] = {"error": self._error.as_dict()}
        self._js.restoring.discard(self._config.name)
        Work(self._host, self._receiver.abandon, lambda result: self._end(fields), lambda error: self._end(fields))

    def _end(self, fields: dict[str, Any]) -> None:
        if self._is_over:
            return
        self._close()
        self._account.send(self._end_reply, encode_json({"type": _TYPE, **fields}))
        times = {"start": format_time(self._start_ns), "end": format_time(self._host.clock())}
        self._tell("COMPLETE", "restore_complete", times | {"bytes": self._received})

    def _give_up(self) -> None:
        """Nobody sends any more."""
        self._timer = None
        if self._is_over or self._end_reply:
            return
        self._close()
        self._queue = []
        self._host.log("warning", f"restore given up stream={self._config.name} bytes={self._received}")
        Work(self._host, self._receiver.abandon, lambda result: None, lambda error: None)

    def _close(self) -> None:
        self._is_over = True
        self._cancel_timer()
        self._account.unsubscribe(self._sub)

    def _restart_timer(self) -> None:
        self._cancel_timer()
        self._timer = self._host.call_at(self._host.clock() + _IDLE_NS, self._give_up)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, event: str, type: str, fields: dict[str, Any]) -> None:
        fields = {"stream": self._config.name, **fields, "client": self._client}
        send_advisory(self._account, self._host, f"STREAM.RESTORE_{event}.{self._config.name}", type, fields)
