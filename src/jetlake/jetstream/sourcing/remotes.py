"""The remotes of an account: other servers whose streams it may copy, where this one is a client as any other.

A mirror or source names one by `external.api`: `$JETLAKE.REMOTE.<name>`. The configuration names remotes, and clients
may name more (`api/remotes.py`), which are kept in `remotes.secret.json` in the account's directory: readable by the
server's user alone, and sealed where the server encrypts. Of two remotes of a name the configured one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import xxhash

from jetlake.broker.broker import GLOBAL_ACCOUNT
from jetlake.config.options import RemoteOptions
from jetlake.errors import JetLakeError
from jetlake.store.disk.files import SECRET_MARK, atomic_write

if TYPE_CHECKING:
    from jetlake.jetstream.js_account import JsAccount

PREFIX = "$JETLAKE.REMOTE."
FILE_NAME = f"remotes{SECRET_MARK}.json"
COUNT_MAX = 1000
KIND = b"remotes"


def remote_name(api: str) -> str:
    """The remote that an API prefix names; empty when it is none."""
    return api.removeprefix(PREFIX) if api.startswith(PREFIX) else ""


class Remotes:
    """The remotes of one account by name."""

    def __init__(self, js: JsAccount) -> None:
        self._js = js
        self._named: dict[str, RemoteOptions] = self._read()

    def find(self, name: str) -> RemoteOptions | None:
        """A remote; None when there is none of this name."""
        return self._configured().get(name) or self._named.get(name)

    def all(self) -> list[tuple[RemoteOptions, bool]]:
        """All of them by name, and whether each is in the configuration."""
        configured = self._configured()
        found = {name: (remote, False) for name, remote in self._named.items()}
        found |= {name: (remote, True) for name, remote in configured.items()}
        return [found[name] for name in sorted(found)]

    def put(self, remote: RemoteOptions) -> None:
        """Name a remote, or give a name to another one; durable when this returns. Raises OSError."""
        self._write({**self._named, remote.name: remote})

    def delete(self, name: str) -> bool:
        """Forget a remote that is not configured; False when there is none."""
        if name not in self._named:
            return False
        self._write({key: remote for key, remote in self._named.items() if key != name})
        return True

    def changed(self) -> None:
        """Who copies from a remote may have to begin anew."""
        for stream in self._js.streams.values():
            for feed in stream.copying.feeds():
                feed.remotes_changed()

    def _configured(self) -> dict[str, RemoteOptions]:
        own = self._js.account.name
        found = self._js.host.options.jetstream.remotes
        return {remote.name: remote for remote in found if (remote.account or GLOBAL_ACCOUNT) == own}

    @property
    def _path(self) -> str:
        return f"{self._js.directory.rpartition('/')[0]}/{FILE_NAME}"

    def _write(self, named: dict[str, RemoteOptions]) -> None:
        body = msgspec.json.encode(list(named.values()))
        data = b"%s\n%s" % (xxhash.xxh64_hexdigest(body).encode(), body)
        self._js.files.make_dirs(self._path.rpartition("/")[0])
        atomic_write(self._js.files, self._path, [self._js.encryption.sealer.seal(data, KIND)])
        self._named = named
        self.changed()

    def _read(self) -> dict[str, RemoteOptions]:
        files, path = self._js.files, self._path
        try:
            if not files.exists(path):
                return {}
            checksum, _, body = self._js.encryption.sealer.open(files.read(path), KIND, path).partition(b"\n")
            if xxhash.xxh64_hexdigest(body).encode() != checksum:
                raise ValueError("wrong checksum")
            return {remote.name: remote for remote in msgspec.json.decode(body, type=list[RemoteOptions])}
        except (OSError, JetLakeError, ValueError, msgspec.MsgspecError) as error:
            self._js.host.log("error", f"remotes not read path={path} error={error}")
            return {}
