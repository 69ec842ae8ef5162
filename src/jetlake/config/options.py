"""What a server can be told, with the types and defaults it uses.

Ports: -1 asks for a random one. Durations are seconds, except where JetStream counts in nanoseconds. None means
"not given": the server decides then, and each comment says how. Options never change: a reload builds new ones.
"""

from __future__ import annotations

from msgspec import Struct

RANDOM_PORT = -1
UNLIMITED = -1
PORT_DEFAULT = 4222
HOST_DEFAULT = "0.0.0.0"


class _Discreet(Struct, frozen=True):
    """A struct whose secrets do not show when it is printed or logged."""

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self.__struct_fields__)
        fields = ", ".join(f"{name}={'***' if name in _SECRETS and value else repr(value)}" for name, value in shown)
        return f"{type(self).__name__}({fields})"


_SECRETS = {"password", "token", "key", "prev_key"}


class SubjectPermission(Struct, frozen=True):
    """`allow` None admits every subject, () none; `deny` wins. A subscription may be "subject queue"."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponsePermission(Struct, frozen=True):
    """Leave to publish to the reply subject of a delivered message. Negative values mean no limit."""

    max_msgs: int = 1
    expires_s: float = 120.0


class Permissions(Struct, frozen=True):
    """What a user may do; None is no restriction. With allow_responses alone, publish allows nothing else."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    allow_responses: ResponsePermission | None = None


class User(_Discreet, frozen=True, kw_only=True):
    """A user has a username (and a password, plain or bcrypt) or an nkey. `account` None is the global account."""

    username: str = ""
    password: str = ""
    nkey: str = ""
    account: str | None = None
    permissions: Permissions | None = None
    allowed_connection_types: frozenset[str] = frozenset()  # empty: all

    @property
    def name(self) -> str:
        return self.nkey or self.username


class Authorization(_Discreet, frozen=True, kw_only=True):
    """Who may connect when accounts name nobody. At most one of token, username and users is set in a file."""

    token: str = ""
    username: str = ""
    password: str = ""
    users: tuple[User, ...] = ()
    timeout_s: float | None = None  # ServerOptions.auth_timeout_s has the value to use


class AccountJetStream(Struct, frozen=True, kw_only=True):
    """JetStream limits of one account; -1 is no limit."""

    max_memory: int = UNLIMITED
    max_store: int = UNLIMITED
    max_streams: int = UNLIMITED
    max_consumers: int = UNLIMITED
    max_ack_pending: int = UNLIMITED
    memory_max_stream_bytes: int = UNLIMITED
    store_max_stream_bytes: int = UNLIMITED
    max_bytes_required: bool = False


class Export(Struct, frozen=True, kw_only=True):
    """What an account lets others have: messages of a stream of subjects, or answers to requests."""

    kind: str  # "stream" or "service"
    subject: str
    accounts: tuple[str, ...] = ()  # who may import it; nobody named: all
    account_token_position: int = 0  # this token, from 1, has to be the importer's name; 0: no such rule
    response_type: str = "singleton"  # of a service: also "streamed" and "chunked"
    response_threshold_s: float = 120.0  # how long a singleton may take


class Import(Struct, frozen=True, kw_only=True):
    """What an account has from another, whose export says how a service is answered."""

    kind: str  # "stream" or "service"
    account: str
    subject: str
    local: str  # what it is called here, as it was written
    share: bool = False  # tell a service who asks
    response_type: str = "singleton"
    response_threshold_s: float = 120.0


class Account(Struct, frozen=True, kw_only=True):
    """An account: subjects of one are invisible in another, but for exports. `jetstream` None is disabled."""

    name: str
    nkey: str = ""
    users: tuple[User, ...] = ()
    jetstream: AccountJetStream | None = None
    max_connections: int = UNLIMITED
    max_subscriptions: int = UNLIMITED
    max_payload: int = UNLIMITED
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()


class JetStreamLimits(Struct, frozen=True, kw_only=True):
    """Limits that a server puts on the configurations of its streams and consumers; 0 is none."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    duplicate_window_ns: int = 0
    batch_max_inflight_per_stream: int = 0
    batch_max_inflight_total: int = 0
    batch_max_msgs: int = 0
    batch_timeout_ns: int = 0


class JetStreamOptions(_Discreet, frozen=True, kw_only=True):
    """The `jetstream` block. An ack waits for its sync unless an interval was asked for."""

    enabled: bool = False
    store_dir: str | None = None  # None: a directory of the server's choice
    max_memory: int | None = None  # None: from the size of the machine
    max_store: int | None = None
    domain: str = ""
    sync_always: bool = True
    sync_interval_s: float = 120.0  # used unless sync_always
    strict: bool = True
    key: str = ""
    prev_key: str = ""
    cipher: str = "chachapoly"  # or "aes"
    limits: JetStreamLimits = JetStreamLimits()


class TlsOptions(Struct, frozen=True, kw_only=True):
    """The `tls` block. Relative file names are relative to the current directory, not to the file."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    verify: bool = False
    timeout_s: float = 2.0
    min_version: str = "1.2"  # or "1.3"
    ciphers: tuple[str, ...] | None = None  # of TLS 1.2, by OpenSSL's names; None: all that are safe
    handshake_first: bool = False
    handshake_first_fallback_s: float | None = None  # wait so long for TLS first, then send INFO in clear


class ListenerOptions(Struct, frozen=True, kw_only=True):
    """A listener that JetLake can hold open but does not serve yet."""

    host: str = HOST_DEFAULT
    port: int = 0
    no_tls: bool = False
    tls: TlsOptions | None = None
    compression: bool = False


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Everything that the file and the command line say, flags first."""

    config_file: str | None = None
    host: str = HOST_DEFAULT
    port: int = PORT_DEFAULT
    http_host: str | None = None  # None: as `host`
    http_port: int = 0  # 0: no monitoring
    http_base_path: str = "/"
    server_name: str = ""  # empty: the server's id
    server_tags: tuple[str, ...] = ()
    server_metadata: dict[str, str] = {}
    ports_file_dir: str | None = None
    pid_file: str | None = None
    signal: str = ""  # what is to be sent to another server, and to which: `reload=<pid or pid file>`

    max_payload: int = 1024 * 1024
    max_connections: int = 64 * 1024  # -1: no limit
    max_subscriptions: int = 0  # 0: no limit
    max_sub_tokens: int = 0  # 0: no limit
    max_control_line: int = 4096
    max_pending: int = 64 * 1024 * 1024
    write_deadline_s: float = 10.0
    ping_interval_s: float = 120.0
    ping_max: int = 2
    lame_duck_duration_s: float = 120.0
    lame_duck_grace_period_s: float = 10.0
    no_header_support: bool = False

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    max_traced_msg_len: int = 0
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str | None = None
    log_size_limit: int = 0
    log_max_num: int = 0

    jetstream: JetStreamOptions = JetStreamOptions()
    authorization: Authorization | None = None
    accounts: dict[str, Account] = {}
    no_auth_user: str = ""
    system_account: str = ""
    no_system_account: bool = False
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    websocket: ListenerOptions | None = None
    leafnodes: ListenerOptions | None = None

    warnings: tuple[str, ...] = ()

    @property
    def auth_timeout_s(self) -> float:
        """How long a client may take to authenticate."""
        if self.authorization and self.authorization.timeout_s:
            return self.authorization.timeout_s
        return self.tls.timeout_s + 1 if self.tls else 2.0

    @property
    def users(self) -> tuple[User, ...]:
        """The users of the authorization block and of all accounts."""
        own = self.authorization.users if self.authorization else ()
        return own + tuple(user for account in self.accounts.values() for user in account.users)
