"""Who may connect and what they may do: the authorization block, users, permissions and accounts."""

from __future__ import annotations

from msgspec.structs import replace

from jetlake import nkeys
from jetlake.config.mappings import mappings
from jetlake.config.options import (
    AccountJetStream,
    AccountOptions,
    AuthCallout,
    Authorization,
    Permissions,
    ResponsePermission,
    SubjectPermission,
    User,
)
from jetlake.config.read import (
    MERGE,
    SECOND_NS,
    Reader,
    Section,
    as_list,
    as_map,
    boolean,
    duration_ns,
    enabled,
    integer,
    keys,
    names,
    positive_or,
    size,
    string,
    strings,
    timeout_s,
    warning,
)
from jetlake.config.sharing import Listed, exports, imports, link, msg_trace
from jetlake.config.value import Value
from jetlake.errors import BadSubject
from jetlake.subjects import check_filter

GLOBAL_ACCOUNT = "$G"
CONNECTION_TYPES = frozenset({"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"})
_COUNT = integer(-1)

# ---------------------------------------------------------------------------------------------- permissions, users


def _subjects(queues: bool) -> Reader:
    """Subjects or filters; where queues are meant, also "subject queue". None is no restriction."""

    def read(value: Value, warnings: list[str]) -> tuple[str, ...] | None:
        subjects = strings(value, warnings)
        for subject, item in zip(subjects, value.data if isinstance(value.data, list) else [value], strict=True):
            parts = subject.split() if queues and len(subject.split()) == 2 else [subject]
            try:
                for part in parts:
                    check_filter(part)
            except BadSubject as error:
                raise item.error(f"expected a subject: {error}") from None
        return subjects or None

    return read


def subjects(value: Value, warnings: list[str]) -> tuple[str, ...]:
    """One subject or an array of them."""
    return _subjects(queues=False)(value, warnings) or ()


def _denied(queues: bool) -> Reader:
    return lambda value, warnings: _subjects(queues)(value, warnings) or ()


def _allowed(queues: bool) -> Reader:
    """As in nats-server, an empty array restricts nothing. That may surprise, so it is said."""

    def read(value: Value, warnings: list[str]) -> tuple[str, ...] | None:
        if value.data == []:
            warnings.append(warning(value, 'an empty array of subjects allows them all; deny ">" to allow none'))
        subjects: tuple[str, ...] | None = _subjects(queues)(value, warnings)
        return subjects

    return read


def _subject_permission(queues: bool) -> Reader:
    section = Section("a permission", keys(allow=("", _allowed(queues)), deny=("", _denied(queues))))

    def read(value: Value, warnings: list[str]) -> SubjectPermission | None:
        if isinstance(value.data, dict):
            return SubjectPermission(**section.read(value, warnings)) if value.data else None
        if not isinstance(value.data, str | list):
            raise value.expected("a subject, an array of subjects or {allow, deny}")
        return SubjectPermission(_allowed(queues)(value, warnings))

    return read


RESPONSES = Section(
    "allow_responses",
    keys(
        max_msgs=("max max_msgs max_messages max_responses", integer(zero_is=1)),
        expires_s=("expires expiration ttl", lambda value, warnings: duration_ns(value, warnings) / SECOND_NS or 120.0),
    ),
)


def _allow_responses(value: Value, warnings: list[str]) -> ResponsePermission | None:
    if isinstance(value.data, bool):
        return ResponsePermission() if value.data else None
    if not isinstance(value.data, dict):
        raise value.expected("a boolean or {max, expires}")
    return ResponsePermission(**RESPONSES.read(value, warnings))


PERMISSIONS = Section(
    "permissions",
    keys(
        publish=("publish pub import", _subject_permission(queues=False)),
        subscribe=("subscribe sub export", _subject_permission(queues=True)),
        allow_responses=("allow_responses publish_allow_responses", _allow_responses),
    ),
)


def _permissions(value: Value, warnings: list[str]) -> Permissions:
    fields = PERMISSIONS.read(value, warnings)
    publish = fields.get("publish") or SubjectPermission()
    if fields.get("allow_responses") and publish.allow is None:
        fields["publish"] = SubjectPermission((), publish.deny)  # responses only, then
    return Permissions(**fields)


def nkey(kind: int, prefix: str, whose: str) -> Reader:
    """A public nkey."""

    def read(value: Value, warnings: list[str]) -> str:
        text = string(value, warnings)
        if not nkeys.is_public(text, kind):
            raise value.error(f"expected a public nkey of {whose}: 56 characters that start with {prefix}")
        return text

    return read


def _connection_types(value: Value, warnings: list[str]) -> frozenset[str]:
    types = frozenset(name.upper() for name in strings(value, warnings))
    if unknown := types - CONNECTION_TYPES:
        raise value.error(f"unknown connection type {min(unknown)!r}: expected {', '.join(sorted(CONNECTION_TYPES))}")
    return types


USER = Section(
    "a user",
    keys(
        username=("user username", string),
        password=("pass password", string),
        nkey=("", nkey(nkeys.USER, "U", "a user")),
        permissions=("permissions permission authorization", _permissions),
        allowed_connection_types=("allowed_connection_types connection_types clients", _connection_types),
        proxy_required=("", boolean),
    ),
)


def _users(value: Value, warnings: list[str]) -> tuple[User, ...]:
    return tuple(_user(item, warnings) for item in as_list(value, "an array of users"))


def _user(value: Value, warnings: list[str]) -> User:
    user = User(**USER.read(value, warnings))
    if not user.name:
        raise value.error("a user needs a name ('user') or an 'nkey'")
    if user.nkey and (user.username or user.password):
        raise value.error("a user with an nkey takes no name and no password")
    return user


def _with_default_permissions(users: tuple[User, ...], default: Permissions | None) -> tuple[User, ...]:
    return tuple(user if user.permissions else replace(user, permissions=default) for user in users)


AUTH_CALLOUT = Section(
    "auth_callout",
    keys(
        issuer=("", nkey(nkeys.ACCOUNT, "A", "an account")),
        account=("account acc", string),
        auth_users=("auth_users users", strings),
        xkey=("xkey key", nkey(nkeys.CURVE, "X", "a curve key")),
        allowed_accounts=("", strings),
    ),
)


def _auth_callout(value: Value, warnings: list[str]) -> AuthCallout:
    fields = AUTH_CALLOUT.read(value, warnings)
    for name in ("issuer", "auth_users"):
        if not fields.get(name):
            raise value.error(f"{name!r} is missing")
    return AuthCallout(**fields)


AUTHORIZATION = Section(
    "authorization",
    keys(
        token=("", string),
        username=("user username", string),
        password=("pass password", string),
        users=("", _users),
        auth_callout=("auth_callout auth_hook", _auth_callout),
        timeout_s=("timeout", positive_or(0, timeout_s)),
        default_permissions=("default_permissions default_permission permissions", _permissions),
    ),
    refused=names("proxy_required"),
)


def authorization(value: Value, warnings: list[str]) -> Authorization:
    fields = AUTHORIZATION.read(value, warnings)
    if "users" in fields and (fields.get("token") or fields.get("username")):
        raise value.error("an array of users cannot stand beside a token or a single user")
    fields["users"] = _with_default_permissions(fields.get("users", ()), fields.pop("default_permissions", None))
    auth = Authorization(**fields)
    if auth.token and (auth.username or auth.password):
        raise value.error("a token cannot stand beside a user and password")
    if (auth.timeout_s or 0) > 60:
        warnings.append(warning(value, "a timeout above 60 seconds is high"))
    return auth


# ---------------------------------------------------------------------------------------------- accounts

ACCOUNT_JETSTREAM = Section(
    "jetstream of an account",
    keys(
        max_memory=("max_memory max_mem memory mem", size),
        max_store=("max_store max_file max_disk store disk", size),
        max_streams=("max_streams streams", integer()),
        max_consumers=("max_consumers consumers", integer()),
        max_ack_pending=("", integer()),
        memory_max_stream_bytes=("memory_max_stream_bytes mem_max_stream_bytes", size),
        store_max_stream_bytes=("store_max_stream_bytes disk_max_stream_bytes", size),
        max_bytes_required=("max_bytes_required max_stream_bytes max_bytes", boolean),
    ),
    ignored=names("cluster_traffic"),
)


def _account_jetstream(value: Value, warnings: list[str]) -> AccountJetStream | None:
    if isinstance(value.data, dict):
        return AccountJetStream(**ACCOUNT_JETSTREAM.read(value, warnings))
    return AccountJetStream() if enabled(value) else None


ACCOUNT_LIMITS = Section(
    "limits of an account",
    keys(
        max_connections=("max_connections max_conn", _COUNT),
        max_subscriptions=("max_subscriptions max_subs", _COUNT),
        max_payload=("max_payload max_pay", _COUNT),
        max_leafs=("max_leafnodes max_leafs", _COUNT),
    ),
)
ACCOUNT = Section(
    "an account",
    keys(
        nkey=("", nkey(nkeys.ACCOUNT, "A", "an account")),
        users=("", _users),
        jetstream=("", _account_jetstream),
        default_permissions=("", _permissions),
        exports=("", exports),
        imports=("", imports),
        mappings=("mappings maps", mappings),
    )
    | {"limits": (MERGE, ACCOUNT_LIMITS.read), "msg_trace": (MERGE, msg_trace), "trace_dest": (MERGE, msg_trace)},
)


def accounts(value: Value, warnings: list[str]) -> dict[str, AccountOptions]:
    """A map of accounts, or an array of the names of empty ones."""
    if isinstance(value.data, list):
        entries = {}
        for item in value.data:
            if (name := string(item, warnings)) in entries:
                raise item.error(f"the account {name!r} is defined twice")
            entries[name] = Value({}, item.where)
    else:
        entries = as_map(value, "a map of accounts or an array of their names")
    found: dict[str, AccountOptions] = {}
    shared: dict[str, dict[str, list[Listed]]] = {}
    for name, entry in entries.items():
        if not entry.used_as_variable or isinstance(entry.data, dict):
            found[name], shared[name] = _account(name, entry, warnings)
    return link(found, shared)


def _account(name: str, value: Value, warnings: list[str]) -> tuple[AccountOptions, dict[str, list[Listed]]]:
    """The account, and beside it what it shares, which cannot be checked before all accounts are known."""
    if name == GLOBAL_ACCOUNT:
        raise value.error(f"the account name {name!r} is reserved")
    fields = ACCOUNT.read(value, warnings)
    shared: dict[str, list[Listed]] = {key: fields.pop(key) for key in ("exports", "imports") if key in fields}
    users = _with_default_permissions(fields.pop("users", ()), fields.pop("default_permissions", None))
    return AccountOptions(name=name, users=tuple(replace(user, account=name) for user in users), **fields), shared
