"""Encryption at rest: whether all files of a server are under its key, and how they come to be.

    <store_dir>/jetstream/jetlake.crypt     sealed: everything here is under the key and cipher of this very file

A start without a key finds no such file, or is refused everything. A start with a key opens it:

    it is under the key and cipher      what is not encrypted, or not with this key, is damage from now on
    under prev_encryption_key, under    every stream of every account, enabled or not, is converted before it is served;
    another cipher, or not there        the file is written when that is done, so that an interrupted start goes on
    under another key                   nothing is opened, converted or made

Where the file is missing or damaged, the keys are tried on all streams before the first byte is written. Names of
consumers are no file names here: see `Sealer.opaque_name`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace

from jetlake.clock import SECOND_NS
from jetlake.errors import BadRequest, CorruptBlock, JetLakeError
from jetlake.jetstream.consumers.state_files import ConsumerFiles
from jetlake.jetstream.host import Host
from jetlake.jetstream.schedules import scheduler
from jetlake.jetstream.sourcing import positions
from jetlake.jetstream.sourcing.remotes import FILE_NAME as REMOTES_NAME
from jetlake.jetstream.sourcing.remotes import KIND as REMOTES_KIND
from jetlake.jetstream.streams.config import CIPHERS, StreamConfig, file_options, key_sources, limits
from jetlake.jetstream.streams.meta import (
    CONSUMERS_NAME,
    LEDGER_NAME,
    META_NAME,
    MSGS_NAME,
    STREAMS_NAME,
    is_tomb,
    read_meta,
    unfinished_files,
    write_meta,
)
from jetlake.store import Cipher, FileOptions, FileStore
from jetlake.store.blocks.sealed_file import Sealer, is_sealed, salt_of
from jetlake.store.disk.files import Files, atomic_write
from jetlake.store.disk.recover import check_keys
from jetlake.store.format import SALT_SIZE

STATE_NAME = "jetlake.crypt"
_KIND, _LEDGER_KIND = b"server", b"ledger"
_STATE = b'{"version":1}\n'
_PROGRESS_NS = 2 * SECOND_NS
_SIDE_FILES = ((positions.FILE_NAME, positions.KIND), (scheduler.FILE_NAME, scheduler.KIND))


class Encryption:
    """How the files of a server are encrypted."""

    def __init__(self, files: Files, root: str, host: Host) -> None:
        self._files, self._root, self._host = files, root, host
        self._path, options = f"{root}/{STATE_NAME}", host.options.jetstream
        cipher = CIPHERS[options.cipher] if options.key else Cipher.NONE
        self.sealer = Sealer(cipher, key_sources(options), secrets.token_bytes(SALT_SIZE))
        self.problem: JetLakeError | None = None  # why nothing on the disk may be touched
        self.others: list[Callable[[Sealer], None]] = []  # convert files that are no stream's; set before the start
        self._is_settled = cipher is Cipher.NONE

    def file_options(self, config: StreamConfig) -> FileOptions:
        """How a stream lies on disk."""
        sealer = self.sealer
        options = file_options(config, self._host.options.jetstream, sealer.keys)
        requires_cipher = not sealer.accepts_plain
        salt = sealer.salt if sealer.cipher else b""
        return replace(options, salt=salt, convert=True, requires_cipher=requires_cipher)

    def start(self) -> None:
        """Convert what is not under the key, or find out that the key is wrong."""
        try:
            self._open()
        except JetLakeError as error:
            self.problem = error
            self._host.log("error", f"nothing stored is opened, made or changed: {error}")
            return
        if not self._is_settled:
            self._convert_all()

    def check(self) -> None:
        """Raise what keeps the server from touching the disk."""
        if self.problem is not None:
            raise self.problem

    def _open(self) -> None:
        options = self._host.options.jetstream
        if options.prev_key and not options.key:
            raise BadRequest("jetstream prev_encryption_key needs an encryption_key beside it")
        data = self._files.read(self._path) if self._files.exists(self._path) else b""
        try:
            state = self.sealer.open(data, _KIND, self._path) if is_sealed(data) else b""
        except CorruptBlock:  # its one fact is found out again
            state = b""
        if self.sealer.cipher is Cipher.NONE:
            return
        if state == _STATE:
            self.sealer.salt = salt_of(data)
            if self.sealer.is_current(data):
                self._settle()
        else:
            for directory in self._streams():
                self._check_keys(directory)

    def _settle(self) -> None:
        """Everything is under the first key: take nothing else from now on."""
        self._is_settled, self.sealer.accepts_plain = True, False
        self.sealer.keys = self.sealer.keys[:1]

    def _check_keys(self, directory: str) -> None:
        """WrongKey when none of the keys is that of a stream."""
        for path in (f"{directory}/{META_NAME}", f"{directory}/{MSGS_NAME}"):
            if self._files.exists(path):
                if path.endswith(MSGS_NAME):
                    check_keys(self._files, path, self.sealer)
                elif is_sealed(data := self._files.read(path)):
                    self.sealer.check_key(data, path)

    def _streams(self, *, tombs: bool = False) -> Iterator[str]:
        """The directories of the streams of all accounts, or of those that were deleted."""
        for account in self._files.list(self._root):
            streams = f"{self._root}/{account}/{STREAMS_NAME}"
            for name in self._files.list(streams) if self._files.exists(streams) else ():
                signs = (f"{streams}/{name}/{sign}" for sign in (META_NAME, MSGS_NAME))
                if is_tomb(name) == tombs and (tombs or any(map(self._files.exists, signs))):
                    yield f"{streams}/{name}"

    def _convert_all(self) -> None:
        clock, log = self._host.clock, self._host.log
        start_ns = told_ns = clock()
        failed = 0
        directories = list(self._streams())
        for tomb in list(self._streams(tombs=True)):
            self._files.remove_tree(tomb)
        for done, directory in enumerate(directories):
            try:
                self._convert(directory)
            except (OSError, JetLakeError) as error:
                failed += 1
                log("error", f"stream not encrypted path={directory} error={error}")
            if clock() - told_ns > _PROGRESS_NS:
                told_ns = clock()
                log("info", f"encrypting streams done={done + 1} of={len(directories)}")
        failed += self._convert_remotes() + self._convert_others()
        seconds = (clock() - start_ns) / SECOND_NS
        if failed:
            log("warning", f"streams not encrypted count={failed}: the next start tries again, and needs the same keys")
            return
        atomic_write(self._files, self._path, [self.sealer.seal(_STATE, _KIND)])
        self._settle()
        cipher = self.sealer.cipher.name.lower()
        log("info", f"streams encrypted count={len(directories)} cipher={cipher} seconds={seconds:.3f}")

    def _convert_remotes(self) -> int:
        """Bring the credentials of other servers under the key; how many files could not be."""
        failed = 0
        for account in self._files.list(self._root):
            path = f"{self._root}/{account}/{REMOTES_NAME}"
            try:
                self._reseal(path, REMOTES_KIND)
            except (OSError, JetLakeError) as error:
                failed += 1
                self._host.log("error", f"remotes not encrypted path={path} error={error}")
        return failed

    def _convert_others(self) -> int:
        """Bring what the cluster keeps under the key; how much of it could not be."""
        failed = 0
        for convert in self.others:
            try:
                convert(self.sealer)
            except (OSError, JetLakeError) as error:
                failed += 1
                self._host.log("error", f"cluster log not encrypted error={error}")
        return failed

    def _reseal(self, path: str, kind: bytes) -> None:
        """Bring a file that is sealed as a whole under the key, if there is one."""
        files, sealer = self._files, self.sealer
        if files.exists(path) and not sealer.is_current(data := files.read(path)):
            atomic_write(files, path, [sealer.seal(sealer.open(data, kind, path), kind)])

    def _convert(self, directory: str) -> None:
        """Bring all files of a stream under the key."""
        files, sealer, clock = self._files, self.sealer, self._host.clock
        meta = read_meta(files, directory, sealer)
        first_seq, options = max(meta.config.first_seq, 1), replace(self.file_options(meta.config), sync="always")
        msgs = f"{directory}/{MSGS_NAME}"
        if files.exists(msgs):
            store = FileStore(
                msgs,
                limits(meta.config),
                options,
                first_seq=first_seq,
                files=files,
                clock=clock,
                autocommit=False,
                tree_locked=True,
            )
            store.stop()
        ConsumerFiles(files, f"{directory}/{CONSUMERS_NAME}", sealer, meta.config.name).convert()
        if not sealer.is_current(files.read(f"{directory}/{META_NAME}")):
            write_meta(files, directory, meta, sealer)
        self._reseal(f"{directory}/{LEDGER_NAME}", _LEDGER_KIND)
        for name, kind in _SIDE_FILES:
            try:
                self._reseal(f"{directory}/{name}", kind)
            except CorruptBlock:  # the messages say it, too
                files.remove(f"{directory}/{name}")
        for path in unfinished_files(files, directory):
            files.remove(path)
