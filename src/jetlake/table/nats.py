"""A small NATS client without an event loop: what a Spark task needs to read from and write to a live server.

One connection, one thread. `request` asks and waits for the answer; `publish` collects frames until `flush`; `receive`
hands over raw bytes, for the kernel. Everything waits at most the option `timeoutS`, and errors say which server.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jetlake import __version__, nkeys
from jetlake.table.errors import BadOption, ServerError
from jetlake.table.options import Options, split_list
from jetlake.wire.headers import header_value

_PORT = 4222
_RECEIVE_SIZE = 256 * 1024
_LINE_SIZE_MAX = 1024 * 1024
_SEED_PREFIX = 18 << 3  # the letter S of a seed


class Reply(NamedTuple):
    """A message that is not a delivery: an answer, an ack, a status."""

    subject: bytes
    headers: bytes
    payload: bytes

    @property
    def status(self) -> int:
        """The code in the first line of the headers; 0 when there is none."""
        words = self.headers.split(b"\r\n", 1)[0].split(b" ")
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    @property
    def description(self) -> str:
        """What a status says in words."""
        return b" ".join(self.headers.split(b"\r\n", 1)[0].split(b" ")[2:]).decode("utf-8", "replace")


class Disconnected(ServerError):
    """The connection is gone; another one may succeed."""


class Connection:
    """A connection to a NATS server, logged in."""

    def __init__(self, options: Options, name: str = "jetlake-spark") -> None:
        self._options, self._name = options, name
        self.inbox = f"_INBOX.{secrets.token_hex(11)}"
        self.inbox_bytes = self.inbox.encode()
        self.info: dict[str, Any] = {}
        self._frames: list[bytes] = []
        self._frames_size = self._asked = 0
        self._received = bytearray()
        self._socket = self._dial()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    @property
    def where(self) -> str:
        """The server, for error texts."""
        return self._where

    # Connecting

    def _dial(self) -> socket.socket | ssl.SSLSocket:
        errors = []
        for url in split_list(self._options.url):
            try:
                return self._connect(url if "://" in url else f"nats://{url}")
            except (OSError, Disconnected) as error:
                errors.append(f"{_safe(url)}: {error}")
        raise Disconnected("cannot connect: " + "; ".join(errors))

    def _connect(self, url: str) -> socket.socket | ssl.SSLSocket:
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.hostname:
            raise BadOption(f"{_safe(url)} is not a url like nats://host:4222")
        self._where = f"{parts.hostname}:{parts.port or _PORT}"
        link: socket.socket | ssl.SSLSocket = socket.create_connection(
            (parts.hostname, parts.port or _PORT), timeout=self._options.timeout_s
        )
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket, self._received = link, bytearray()
            wants_tls = self._options.tls or parts.scheme == "tls"
            if self._options.tls_first:
                self._socket = link = self._secure(link, parts.hostname)
            line = self._line()
            if not line.startswith(b"INFO "):
                raise Disconnected(f"{self._where} does not greet as a NATS server does")
            self.info = json.loads(line[5:])
            if not self._options.tls_first and (wants_tls or self.info.get("tls_required")):
                self._socket = link = self._secure(link, parts.hostname)
            user = unquote(parts.username or ""), unquote(parts.password or "")
            self._login(user)
        except BaseException:
            link.close()
            raise
        return link

    def _secure(self, link: socket.socket, host: str) -> ssl.SSLSocket:
        return self._tls_context().wrap_socket(link, server_hostname=self._options.tls_host or host)

    def _tls_context(self) -> ssl.SSLContext:
        options = self._options
        files = [path for path in (options.tls_ca_file, options.tls_cert_file, options.tls_key_file) if path]
        for path in files:
            _read(path)  # Python's own errors do not name the file
        try:
            context = ssl.create_default_context(cafile=options.tls_ca_file or None)
            if options.tls_cert_file:
                context.load_cert_chain(options.tls_cert_file, options.tls_key_file or None)
        except ssl.SSLError as error:
            raise BadOption(f"{', '.join(files)}: not certificates and the key of one: {error}") from None
        return context

    def _login(self, url_user: tuple[str, str]) -> None:
        hello = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "echo": False,
            "lang": "python-jetlake",
            "version": __version__,
            "name": self._name,
            **self._credentials(url_user),
        }
        self._socket.sendall(b"CONNECT %s\r\nPING\r\n" % json.dumps(hello).encode())
        while (line := self._line()) != b"PONG":
            if line.startswith(b"-ERR"):
                raise ServerError(f"{self._where} refused the login: {_err_text(line)}")
        self._socket.sendall(f"SUB {self.inbox}.* 1\r\n".encode())

    def _credentials(self, url_user: tuple[str, str]) -> dict[str, str]:
        options, nonce = self._options, str(self.info.get("nonce", "")).encode()
        if options.creds_file:
            token, seed = _parse_creds(_read(options.creds_file), options.creds_file)
            return {"jwt": token, "sig": _sign(seed, nonce, options.creds_file)[1]}
        if options.nkey_file:
            seed = _read(options.nkey_file).strip()
            public, signature = _sign(seed, nonce, options.nkey_file)
            return {"nkey": public, "sig": signature}
        if options.token:
            return {"auth_token": options.token}
        user, password = (options.user, options.password) if options.user else url_user
        if user and not password and not options.user:
            return {"auth_token": user}  # as other clients read nats://token@host
        return {"user": user, "pass": password} if user else {}

    # Talking

    def publish(self, frame: bytes) -> None:
        """Queue a PUB or HPUB frame; `flush` sends it."""
        self._frames.append(frame)
        self._frames_size += len(frame)

    def flush(self) -> None:
        """Send what is queued."""
        if self._frames:
            data, self._frames, self._frames_size = b"".join(self._frames), [], 0
            try:
                self._socket.sendall(data)
            except OSError as error:
                raise Disconnected(f"{self._where}: {error}") from None

    @property
    def queued_size(self) -> int:
        """Bytes that wait for `flush`."""
        return self._frames_size

    def request(self, subject: str, body: object = None, headers: bytes = b"") -> Reply:
        """Ask, and wait for the answer. Deliveries and acks that arrive meanwhile are dropped."""
        self._asked += 1
        reply = f"{self.inbox}.r{self._asked}"
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.publish(pub_frame(subject.encode(), payload, headers, reply.encode()))
        self.flush()
        for answer in self.replies():
            if answer.subject == reply.encode():
                if answer.status == 503:
                    raise ServerError(f"{self._where}: nobody answers {subject}: is JetStream enabled?")
                return answer
        raise Disconnected(f"{self._where}: no answer to {subject} within {self._options.timeout_s:g} s")

    def api(self, name: str, body: object = None) -> dict[str, Any]:
        """Ask the JetStream API; ApiRefused with the server's words when it refuses."""
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{name}", body).payload)
        if "error" in answer:
            raise ApiRefused(self._where, name, answer["error"])
        return answer

    def replies(self, timeout_s: float | None = None) -> Iterator[Reply]:
        """Messages as they arrive, until there is none for so long."""
        deadline = time.monotonic() + (self._options.timeout_s if timeout_s is None else timeout_s)
        while True:
            while (found := self.next_reply()) is not None:
                yield found
            if not self.receive(deadline):
                return

    def next_reply(self) -> Reply | None:
        """The next message that has arrived whole; control lines before it are dealt with."""
        while True:
            end = self._received.find(b"\r\n")
            if end < 0:
                return None
            line = bytes(self._received[:end])
            if not line.startswith((b"MSG ", b"HMSG ")):
                del self._received[: end + 2]
                self._control(line)
                continue
            words = line.split(b" ")
            total = int(words[-1])
            if len(self._received) < end + 2 + total + 2:
                return None
            body = bytes(self._received[end + 2 : end + 2 + total])
            del self._received[: end + 2 + total + 2]
            cut = int(words[-2]) if words[0] == b"HMSG" else 0
            return Reply(words[1], body[:cut], body[cut:])

    def _control(self, line: bytes) -> None:
        if line == b"PING":
            self._socket.sendall(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            text = _err_text(line)
            kind = ServerError if "Permissions Violation" in text or "Authorization" in text else Disconnected
            raise kind(f"{self._where} says: {text}")
        elif line.startswith(b"INFO "):
            self.info |= json.loads(line[5:])

    def receive(self, deadline: float) -> bool:
        """Wait for more bytes until a moment of the monotonic clock; False when none came."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        self._socket.settimeout(left)
        try:
            chunk = self._socket.recv(_RECEIVE_SIZE)
        except TimeoutError:
            return False
        except OSError as error:
            raise Disconnected(f"{self._where}: {error}") from None
        finally:
            self._socket.settimeout(self._options.timeout_s)
        if not chunk:
            raise Disconnected(f"{self._where} closed the connection")
        self._received += chunk
        return True

    @property
    def received(self) -> bytearray:
        """What has arrived and nobody has taken, for a kernel; take bytes off its front."""
        return self._received

    def _line(self) -> bytes:
        deadline = time.monotonic() + self._options.timeout_s
        while (end := self._received.find(b"\r\n")) < 0:
            if len(self._received) > _LINE_SIZE_MAX or not self.receive(deadline):
                raise Disconnected(f"{self._where} sends no line of the NATS protocol")
        line = bytes(self._received[:end])
        del self._received[: end + 2]
        return line.rstrip()


class ApiRefused(ServerError):
    """The JetStream API answered with an error."""

    def __init__(self, where: str, name: str, error: dict[str, Any]) -> None:
        super().__init__(f"{where}: {name}: {error.get('description')} ({error.get('err_code')})")
        self.code = int(error.get("err_code", 0))


def pub_frame(subject: bytes, payload: bytes, headers: bytes = b"", reply: bytes = b"") -> bytes:
    """A publish as it goes over the wire."""
    target = b"%s %s" % (subject, reply) if reply else subject
    if headers:
        total = len(headers) + len(payload)
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (target, len(headers), total, headers, payload)
    return b"PUB %s %d\r\n%s\r\n" % (target, len(payload), payload)


def message_id(headers: bytes) -> bytes:
    """The Nats-Msg-Id of a message; empty when it has none."""
    return header_value(headers, b"Nats-Msg-Id") or b""


def _err_text(line: bytes) -> str:
    return line.removeprefix(b"-ERR").strip().strip(b"'").decode("utf-8", "replace")


def _safe(url: str) -> str:
    """A url without what is secret in it."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _read(path: str) -> str:
    """A file that an option names."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _parse_creds(text: str, path: str) -> tuple[str, str]:
    """The JWT and the seed of a credentials file."""
    found = {}
    for part in ("NATS USER JWT", "USER NKEY SEED"):
        start, end = f"BEGIN {part}", f"END {part}"
        if start not in text or end not in text:
            raise BadOption(f"{path}: there is no {part} in this credentials file")
        lines = text.split(start, 1)[1].split(end, 1)[0].strip("-\r\n ").splitlines()
        found[part] = lines[0].strip() if lines else ""
    return found["NATS USER JWT"], found["USER NKEY SEED"]


def _sign(seed: str, nonce: bytes, path: str) -> tuple[str, str]:
    """The public key of a seed, and its signature over the server's nonce."""
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except ValueError:
        raw = b""
    is_sound = len(raw) == 36 and binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(raw[-2:], "little")
    if not is_sound or raw[0] & 0xF8 != _SEED_PREFIX:
        raise BadOption(f"{path}: not an nkey seed")
    key = Ed25519PrivateKey.from_private_bytes(raw[2:34])
    signature = base64.urlsafe_b64encode(key.sign(nonce)).rstrip(b"=").decode()
    return nkeys.encode_public(nkeys.USER, key.public_key().public_bytes_raw()), signature
