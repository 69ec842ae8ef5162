"""What a server can be told, with the types and defaults it uses.

Ports: -1 asks for a random one. Durations are seconds, except where JetStream counts in nanoseconds. None means
"not given": the server decides then, and each comment says how. Options never change: a reload builds new ones.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from jetlake.config.origin import WebOrigin

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


_SECRETS = {"password", "token", "key", "prev_key", "nkey_seed", "urls", "routes", "creds"}


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
    proxy_required: bool = False

    @property
    def name(self) -> str:
        return self.nkey or self.username


class AuthCallout(Struct, frozen=True, kw_only=True):
    """A service that says who clients are."""

    issuer: str  # the key that signs users
    account: str = ""  # where the service is; empty: the global one
    auth_users: tuple[str, ...] = ()  # who are checked here: the service itself
    xkey: str = ""
    allowed_accounts: tuple[str, ...] = ()  # whose users are checked by the service; none named: all


class Authorization(_Discreet, frozen=True, kw_only=True):
    """Who may connect when accounts name nobody. At most one of token, username and users is set in a file."""

    token: str = ""
    username: str = ""
    password: str = ""
    users: tuple[User, ...] = ()
    auth_callout: AuthCallout | None = None
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
    tiers: dict[str, AccountJetStream] = {}  # limits by the number of replicas, `R1`; those above are of R1 then


class Latency(Struct, frozen=True):
    """Where it is told how long a service takes, and of how many requests."""

    subject: str
    sampling: int = 100  # in per cent; 0: of requests whose headers ask for it


class Export(Struct, frozen=True, kw_only=True):
    """What an account lets others have: messages of a stream of subjects, or answers to requests."""

    kind: str  # "stream" or "service"
    subject: str
    accounts: tuple[str, ...] = ()  # who may import it; nobody named: all
    account_token_position: int = 0  # this token, from 1, has to be the importer's name; 0: no such rule
    response_type: str = "singleton"  # of a service: also "streamed" and "chunked"
    response_threshold_s: float = 120.0  # how long a singleton may take
    latency: Latency | None = None
    allow_trace: bool = False  # of a service: message traces go on behind it
    needs_token: bool = False  # the importer has to have a token for it
    revocations: dict[str, int] = {}  # tokens that count no more: of which account (or `*`), issued until when


class Import(Struct, frozen=True, kw_only=True):
    """What an account has from another, whose export says how a service is answered."""

    kind: str  # "stream" or "service"
    account: str
    subject: str
    local: str  # what it is called here, as it was written
    share: bool = False  # tell a service who asks
    allow_trace: bool = False  # message traces go on behind it; of a service, its export says so
    response_type: str = "singleton"
    response_threshold_s: float = 120.0
    latency: Latency | None = None

    def as_offered(self, offer: Export) -> Import:
        """The same, with what its export says."""
        return replace(
            self,
            allow_trace=offer.allow_trace if self.kind == "service" else self.allow_trace,
            response_type=offer.response_type,
            response_threshold_s=offer.response_threshold_s,
            latency=offer.latency,
        )


class MappingDestination(Struct, frozen=True):
    """A subject, which may have functions in it, and how much of 100 goes there; in one cluster or in all."""

    subject: str
    weight: int = 100
    cluster: str = ""


class MappingOptions(Struct, frozen=True):
    """Where messages of some subjects go instead."""

    source: str
    destinations: tuple[MappingDestination, ...]


class AccountOptions(Struct, frozen=True, kw_only=True):
    """An account: subjects of one are invisible in another, but for exports. `jetstream` None is disabled."""

    name: str
    nkey: str = ""
    name_tag: str = ""  # the name in its token; empty: it has none
    users: tuple[User, ...] = ()
    jetstream: AccountJetStream | None = None
    max_connections: int = UNLIMITED
    max_subscriptions: int = UNLIMITED
    max_payload: int = UNLIMITED
    max_leafs: int = UNLIMITED
    trace_dest: str = ""  # where traces go of messages that another system's header asks to trace; empty: nowhere
    trace_sampling: int = 100  # of how many of them, in per cent
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
    mappings: tuple[MappingOptions, ...] = ()


class JetStreamLimits(Struct, frozen=True, kw_only=True):
    """Limits that a server puts on the configurations of its streams and consumers; 0 is none."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    duplicate_window_ns: int = 0
    batch_max_inflight_per_stream: int = 0
    batch_max_inflight_total: int = 0
    batch_max_msgs: int = 0
    batch_timeout_ns: int = 0


class TlsOptions(Struct, frozen=True, kw_only=True):
    """The `tls` block. Relative file names are relative to the current directory, not to the file."""

    cert_file: str = ""
    key_file: str = ""
    more_certs: tuple[tuple[str, str], ...] = ()  # certificates with their keys, for other names
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False  # the certificate says which user it is
    pinned_certs: frozenset[str] = frozenset()  # SHA-256 of the public keys that are accepted; none: all
    connection_rate_limit: int = 0  # handshakes a second; 0: no limit
    curve: str = ""  # by OpenSSL's name; empty: what it prefers
    insecure: bool = False  # towards another server: take any certificate
    timeout_s: float = 2.0
    min_version: str = "1.2"  # or "1.3"
    ciphers: tuple[str, ...] | None = None  # of TLS 1.2, by OpenSSL's names; None: all that are safe
    handshake_first: bool = False
    handshake_first_fallback_s: float | None = None  # wait so long for TLS first, then send INFO in clear


class RemoteOptions(_Discreet, frozen=True, kw_only=True):
    """A server whose streams are copied, where this one is a client as any other."""

    name: str = ""
    urls: tuple[str, ...] = ()
    account: str = ""  # on this side, whose streams may copy; empty is $G
    user: str = ""
    password: str = ""
    token: str = ""
    nkey_seed: str = ""
    credentials: str = ""  # the path of a credentials file
    creds: str = ""  # or what is in it
    tls: TlsOptions | None = None
    ca_pem: str = ""  # certificates to trust, beside those of `tls`
    domain: str = ""  # of JetStream, there
    inbox_prefix: str = "_INBOX"


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
    remotes: tuple[RemoteOptions, ...] = ()
    allow_remote_api: bool | None = None  # whether clients may name further remotes; None: see `may_name_remotes`


class ResolverOptions(Struct, frozen=True, kw_only=True):
    """Where the tokens of accounts come from."""

    kind: str = "memory"  # or "url", "full", "cache"
    url: str = ""
    directory: str = ""
    allow_delete: bool = False
    hard_delete: bool = False
    limit: int = 0  # tokens in the directory; 0: no limit
    ttl_s: float = 0.0  # of a cache; 0: for ever
    timeout_s: float = 1.9
    tls: TlsOptions | None = None


class OperatorOptions(Struct, frozen=True, kw_only=True):
    """Operator mode: users and accounts are what signed tokens say."""

    tokens: tuple[str, ...] = ()  # of operators
    keys: tuple[str, ...] = ()  # of operators without a token
    resolver: ResolverOptions = ResolverOptions()
    preload: dict[str, str] = {}  # tokens of accounts by their public keys
    pinned_accounts: frozenset[str] = frozenset()  # that users may be of; none: all
    default_sentinel: str = ""  # the token of a client that shows none


class WebSocketOptions(Struct, frozen=True, kw_only=True):
    """The `websocket` block. Cookies stand in for what a CONNECT leaves out; an empty name is no cookie."""

    host: str = HOST_DEFAULT
    port: int = 0  # 0: no listener
    no_tls: bool = False
    tls: TlsOptions | None = None
    compression: bool = False
    handshake_timeout_s: float = 2.0
    same_origin: bool = False
    allowed_origins: frozenset[WebOrigin] = frozenset()  # none: all
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    no_auth_user: str = ""
    authorization: Authorization | None = None  # in place of the general one
    headers: dict[str, str] = {}  # of the answer to a handshake
    advertise: str = ""
    ping_interval_s: float = 0.0  # 0: as for all clients


class LeafUser(_Discreet, frozen=True, kw_only=True):
    """Who may connect as a leaf, and to which account; empty is $G."""

    username: str = ""
    password: str = ""
    nkey: str = ""
    account: str = ""


class LeafRemote(_Discreet, frozen=True, kw_only=True):
    """A hub that this server is a leaf of, with one account."""

    urls: tuple[str, ...] = ()
    account: str = ""  # on this side; empty is $G
    credentials: str = ""
    nkey_seed: str = ""
    tls: TlsOptions | None = None
    is_hub: bool = False
    deny_imports: tuple[str, ...] = ()
    deny_exports: tuple[str, ...] = ()
    no_randomize: bool = False
    ignore_discovered: bool = False
    isolates: bool = False  # tell it nothing of other leafs
    asks_isolation: bool = False  # ask it to tell nothing of other leafs
    first_info_timeout_s: float = 1.0
    dial_timeout_s: float = 1.0
    is_disabled: bool = False


class LeafOptions(Struct, frozen=True, kw_only=True):
    """The `leafnodes` block. `port` 0 is no listener."""

    host: str = HOST_DEFAULT
    port: int = 0
    tls: TlsOptions | None = None
    advertise: str = ""
    no_advertise: bool = False
    min_version: str = ""
    isolates: bool = False
    reconnect_s: float = 1.0
    dial_timeout_s: float = 1.0
    users: tuple[LeafUser, ...] = ()
    default_account: str = ""  # of leafs that log in as clients do
    auth_timeout_s: float = 2.0
    remotes: tuple[LeafRemote, ...] = ()


class ClusterOptions(_Discreet, frozen=True, kw_only=True):
    """The `cluster` block: where other servers come in, and which ones to connect to. `port` 0 is no cluster."""

    name: str = ""  # empty: the servers agree on one that one of them makes up
    host: str = HOST_DEFAULT
    port: int = 0
    routes: tuple[str, ...] = ()
    username: str = ""
    password: str = ""
    auth_timeout_s: float = 0.0  # 0: 2 seconds, or one more than the TLS handshake may take
    tls: TlsOptions | None = None
    advertise: str = ""  # host:port that other servers are to use
    no_advertise: bool = False  # tell clients nothing of other servers
    connect_retries: int = 0  # of routes that others told of; those of the configuration are tried for ever
    connect_backoff: bool = False
    ping_interval_s: float = 0.0  # 0: as for all clients, but at most PING_INTERVAL_S_MAX
    ping_max: int = 0  # 0: as for all clients


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Everything that the file and the command line say, flags first."""

    config_file: str | None = None
    host: str = HOST_DEFAULT
    port: int = PORT_DEFAULT
    http_host: str | None = None  # None: as `host`
    http_port: int = 0  # 0: no monitoring
    https_port: int = 0  # the same over TLS
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
    syslog: bool = False
    remote_syslog: str = ""  # the URL of a syslog server; empty: none
    log_size_limit: int = 0
    log_max_num: int = 0

    jetstream: JetStreamOptions = JetStreamOptions()
    authorization: Authorization | None = None
    accounts: dict[str, AccountOptions] = {}
    mappings: tuple[MappingOptions, ...] = ()  # of the global account
    no_auth_user: str = ""
    system_account: str = ""
    no_system_account: bool = False
    operator: OperatorOptions | None = None
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    trusted_proxies: tuple[str, ...] = ()  # keys with which proxies sign
    proxy_protocol: bool = False  # a proxy may say in front whom it stands for
    websocket: WebSocketOptions | None = None
    leafnodes: LeafOptions | None = None
    cluster: ClusterOptions | None = None
    client_advertise: str = ""  # host:port that clients are to use
    default_js_domain: dict[str, str] = {}  # by account

    warnings: tuple[str, ...] = ()

    @property
    def auth_timeout_s(self) -> float:
        """How long a client may take to authenticate."""
        if self.authorization and self.authorization.timeout_s:
            return self.authorization.timeout_s
        return self.tls.timeout_s + 1 if self.tls else 2.0

    @property
    def may_call_out(self) -> bool:
        """True when a service may have to say who a client is."""
        return self.operator is not None or (
            self.authorization is not None and self.authorization.auth_callout is not None
        )

    @property
    def may_name_remotes(self) -> bool:
        """True when clients may have the server connect to other servers: by default where all are of one account."""
        if self.jetstream.allow_remote_api is not None:
            return self.jetstream.allow_remote_api
        return self.operator is None and not self.accounts.keys() - {self.system_account or "$SYS"}

    @property
    def users(self) -> tuple[User, ...]:
        """The users of the authorization block and of all accounts."""
        own = self.authorization.users if self.authorization else ()
        return own + tuple(user for account in self.accounts.values() for user in account.users)
