"""JetStream: the streams of all accounts of a server, from start to stop.

Start takes the lock of the store directory, which a second server does not get, recovers every stream of every account
and then lets clients ask. A stream that cannot be opened is reported and stays offline, with its files as they are; one
that lost messages to damage serves the others. No stream's trouble keeps another from starting.

Accounts can be given JetStream, and lose it, while the server runs (`add_account`, `remove_accounts`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from jetlake.broker.account import Account
from jetlake.broker.broker import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from jetlake.broker.subscription import Msg
from jetlake.clock import SECOND_NS
from jetlake.config.options import AccountJetStream, ServerOptions
from jetlake.errors import JetLakeError, StoreError
from jetlake.jetstream import errors
from jetlake.jetstream.api.dispatch import Api
from jetlake.jetstream.api_level import API_LEVEL
from jetlake.jetstream.clustering import Cluster
from jetlake.jetstream.consumers.registry import close_consumers, recover_consumers
from jetlake.jetstream.encryption import Encryption
from jetlake.jetstream.host import Host
from jetlake.jetstream.js_account import JsAccount
from jetlake.jetstream.streams.batches import OpenBatches
from jetlake.jetstream.streams.config import Storage, required_level
from jetlake.jetstream.streams.meta import (
    LOCK_NAME,
    META_NAME,
    MSGS_NAME,
    REPLICA_NAME,
    is_remnant,
    is_tomb,
    is_vacant,
    name_of,
    read_meta,
    stream_directory,
    unfinished_files,
)
from jetlake.jetstream.streams.stream import Stream
from jetlake.store import FileStore
from jetlake.store.disk.files import OS_FILES, Files, Lock
from jetlake.store.redo.redo_files import RedoFiles
from jetlake.store.redo.redo_log import RedoLog
from jetlake.store.redo.replay import replay

_PROGRESS_NS = 2 * SECOND_NS
_DAMAGE_LINES_MAX = 10
_UNKNOWN_NAMES_MAX = 10


class JetStream:
    """Everything about streams that the accounts of a server share."""

    def __init__(
        self,
        host: Host,
        store_dir: str,
        *,
        files: Files = OS_FILES,
    ) -> None:
        self.host = host
        self.directory = f"{store_dir}/jetstream"
        self.plain_files, self.redo = files, RedoLog(files, self.directory)
        self.files = RedoFiles(files, self.redo)
        self.encryption = Encryption(self.files, self.directory, host)
        self.cluster: Cluster | None = None  # set before the start
        self.accounts: dict[str, JsAccount] = {}
        self._apis: dict[str, Api] = {}
        self.max_memory = self.max_store = 0
        self.open_batches = OpenBatches()
        self._lock: Lock | None = None

    def start(self, accounts: Iterable[Account]) -> None:
        """Recover all streams, and take requests. Raises StoreLocked when another server has the directory."""
        self.files.make_dirs(self.directory)
        self._lock = self.files.lock(f"{self.directory}/{LOCK_NAME}")
        self._replay()
        self.encryption.start()
        options = self.host.options.jetstream
        self.max_memory = machine_memory() if options.max_memory is None else options.max_memory
        self.max_store = machine_storage(self.directory) if options.max_store is None else options.max_store
        for account in accounts:
            self.add_account(account)

    def _replay(self) -> None:
        """Give the files what the redo log has, after a crash."""
        found = replay(self.plain_files, self.directory)
        if found.change_count:
            self.host.log("info", f"redo log replayed changes={found.change_count}")
        for problem in found.damage[:_DAMAGE_LINES_MAX]:
            self.host.log("warning", f"redo log damaged {problem}")

    def add_account(self, account: Account) -> None:
        """Serve an account: its streams if JetStream is enabled for it, else the refusal. Again, if that changed."""
        api = self._apis.get(account.name) or self._subscribe(account)
        limits = self._limits(account)
        if limits is not None and account.name in self.accounts:
            self.accounts[account.name].limits = limits
        elif limits is not None:
            api.js_account = account.jetstream = self.accounts[account.name] = JsAccount(
                self, account, limits, api.subscription
            )
            _Recovery(api.js_account).run()
            if self.cluster is None:  # else each request is looked at: another server may have to answer it
                api.js_account.message_run.open()

    def _limits(self, account: Account) -> AccountJetStream | None:
        """What streams of an account may take; None where it has none."""
        if self.host.options.operator is None:
            return enabled_accounts(self.host.options).get(account.name)
        return account.options.jetstream if account.options is not None else None

    def _subscribe(self, account: Account) -> Api:
        api = self._apis[account.name] = Api(account, None, self.host, self.cluster)
        domain = self.host.options.jetstream.domain.encode()
        if domain:
            prefix = b"$JS.%s.API." % domain
            account.subscribe(prefix + b">", lambda msg: account.deliver(_without_domain(msg, prefix)))
        return api

    def close(self) -> None:
        """Take no more messages. What was taken is committed before `stop`."""
        for account in self.accounts.values():
            self._close(account)

    def stop(self) -> None:
        """Stop every stream and let the directory go. Nothing may be waiting to be committed."""
        for account in self.accounts.values():
            self._stop(account)
        try:
            self.redo.close()
        except OSError as error:
            self.host.log("error", f"redo log not emptied, the next start replays it {error=!s}")
        if self._lock is not None:
            self._lock.release()

    def close_accounts(self) -> list[str]:
        """Take no more messages for accounts that lost JetStream. `remove_accounts` comes when all is committed."""
        names = sorted(name for name, found in self.accounts.items() if self._limits(found.account) is None)
        for name in names:
            self._close(self.accounts[name])
        return names

    def remove_accounts(self, names: Iterable[str]) -> None:
        """Stop the streams of accounts. Nothing of theirs may be waiting to be committed."""
        for name in names:
            account = self.accounts.pop(name)
            self._stop(account)
            self._apis[name].js_account = account.account.jetstream = None

    def _close(self, account: JsAccount) -> None:
        account.message_run.close()
        for stream in account.streams.values():
            try:
                close_consumers(stream)
                stream.close()
            except Exception as error:  # the other streams have messages to commit too
                self.host.failed(f"close stream={stream.name}", error)
            stream.log.commit_soon()

    def _stop(self, account: JsAccount) -> None:
        for stream in account.streams.values():
            try:
                stream.stop()
            except (OSError, StoreError) as error:
                self.host.log("error", f"stream not stopped cleanly name={stream.config.name} {error=!s}")
            except Exception as error:
                self.host.failed(f"stop stream={stream.name}", error)

    def remotes_changed(self) -> None:
        """The configuration may name other remotes than before."""
        for account in self.accounts.values():
            account.remotes.changed()

    # What all accounts share

    def exceeds(self, storage: Storage, added_bytes: int) -> bool:
        """Would reservations of this size more be beyond what the server has?"""
        reserved = sum(account.reserved(storage) for account in self.accounts.values())
        return reserved + added_bytes > self._limit(storage)

    def left(self, storage: Storage) -> int:
        """The bytes that the server may still store."""
        return self._limit(storage) - sum(account.used(storage) for account in self.accounts.values())

    def _limit(self, storage: Storage) -> int:
        return self.max_store if storage is Storage.FILE else self.max_memory


class _Recovery:
    """Opens the streams of one account that are on disk."""

    def __init__(self, account: JsAccount) -> None:
        self._account, self._host, self._files = account, account.host, account.files
        self._directory = account.directory

    def run(self) -> None:
        if not self._files.exists(self._directory):
            return
        names = self._files.list(self._directory)
        told_ns = self._host.clock()
        own = [name for name in names if self._is_own(name)]
        self._report_unknown([name for name in names if name not in set(own)])
        for done, file_name in enumerate(own):
            self._recover(file_name)
            if self._host.clock() - told_ns > _PROGRESS_NS:
                told_ns = self._host.clock()
                self._log("info", f"recovering streams done={done + 1} of={len(own)}")
        if own:
            self._log("info", f"streams recovered count={len(self._account.streams)}")

    def _recover(self, file_name: str) -> None:
        directory = f"{self._directory}/{file_name}"
        try:
            if is_tomb(file_name):
                self._account.encryption.check()
                self._files.remove_tree(directory)
            else:
                self._open(directory)
        except (OSError, JetLakeError) as error:
            name = name_of(file_name)
            self._account.offline[name] = errors.reason(error)
            self._log("error", f"stream offline name={name} error={error}")

    def _is_own(self, file_name: str) -> bool:
        """Whether a directory is, or was, a stream's: meta.json comes before the first message."""
        directory = f"{self._directory}/{file_name}"
        try:
            signs = [self._files.exists(f"{directory}/{name}") for name in (META_NAME, MSGS_NAME)]
        except OSError:  # the attempt to open it will tell
            return True
        return is_tomb(file_name) or any(signs)

    def _report_unknown(self, file_names: list[str]) -> None:
        """Leave alone what is no stream, whatever it is."""
        unknown = [name for name in file_names if not self._is_cut_short(name)]
        if unknown:
            shown = ", ".join(unknown[:_UNKNOWN_NAMES_MAX])
            place = f"path={self._directory} count={len(unknown)} names={shown}"
            self._log("warning", f"left alone, not made by JetLake {place}")

    def _is_cut_short(self, file_name: str) -> bool:
        """Whether a directory is what is left of an interrupted creation, which another creation uses, or deletion."""
        directory = f"{self._directory}/{file_name}"
        try:
            if self._account.encryption.problem is None and is_remnant(self._files, directory):
                self._files.remove_tree(directory)
                return True
            return is_vacant(self._files, directory)
        except OSError:  # no directory, or none that can be read
            return False

    def _open(self, directory: str) -> None:
        if self._files.exists(f"{directory}/{REPLICA_NAME}"):
            if self._account.service.cluster is None:
                raise StoreError("it is a replica of a stream in a cluster, and this server is in none")
            return  # its group opens it
        self._account.encryption.check()
        meta = read_meta(self._files, directory, self._account.encryption.sealer)
        name = meta.config.name
        if directory != stream_directory(self._directory, name):
            raise StoreError(f"the directory is not that of stream {name}, whose meta.json it has")
        level = int(meta.config.metadata.get("_nats.req.level") or required_level(meta.config))
        if level > API_LEVEL:
            raise StoreError(f"unsupported - required API level: {level}, current API level: {API_LEVEL}")
        for path in unfinished_files(self._files, directory):
            self._files.remove(path)
        start_ns = self._host.clock()
        stream = self._account.open_stream(meta.config, meta.created_ns, recover_consumers)
        self._report(stream, (self._host.clock() - start_ns) / SECOND_NS)

    def _report(self, stream: Stream, seconds: float) -> None:
        store, name = stream.store, stream.config.name
        assert isinstance(store, FileStore)
        state = store.fast_state()
        torn = f" torn_bytes={store.torn_size}" if store.torn_size else ""
        self._log("info", f"stream recovered name={name} msgs={state.msgs} seconds={seconds:.3f}{torn}")
        for problem in store.damage[:_DAMAGE_LINES_MAX]:
            self._log("warning", f"stream damaged name={name} {problem}")
        if len(store.damage) > _DAMAGE_LINES_MAX or state.lost:
            self._log("warning", f"stream damaged name={name} problems={len(store.damage)} lost={len(state.lost)}")

    def _log(self, level: str, line: str) -> None:
        self._host.log(level, f"{line} account={self._account.account.name}")


def _without_domain(msg: Msg, prefix: bytes) -> Msg:
    """A request of this domain as it is without one. Keys and objects are written under the same prefix."""
    rest = msg.subject[len(prefix) :]
    return msg._replace(subject=rest if rest.startswith(_STORES) else b"$JS.API." + rest)


_STORES = (b"$KV.", b"$OBJ.")


def enabled_accounts(options: ServerOptions) -> dict[str, AccountJetStream]:
    """The accounts that have JetStream: the global one where no others are configured, else those that say so."""
    system = options.system_account or SYSTEM_ACCOUNT
    configured = {name: account for name, account in options.accounts.items() if name not in (system, GLOBAL_ACCOUNT)}
    if not configured:
        own = options.accounts.get(GLOBAL_ACCOUNT)
        return {GLOBAL_ACCOUNT: own.jetstream if own is not None and own.jetstream else AccountJetStream()}
    return {name: account.jetstream for name, account in options.accounts.items() if account.jetstream is not None}


def machine_memory() -> int:
    """How much memory streams may take when nobody says: three quarters of the machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3


def machine_storage(directory: str) -> int:
    """How much of the disk streams may take when nobody says: three quarters of what is free."""
    free = os.statvfs(directory)
    return free.f_bavail * free.f_frsize // 4 * 3
