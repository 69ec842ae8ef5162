"""What operators, accounts, users and activations say under `nats`, with the types and defaults that hold.

Numbers that are not given are 0, which allows nothing; -1 is no limit. That is the rule of nats-server, so a token of
which a limit was forgotten is of no use there either.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from jetlake import nkeys
from jetlake.jwt.envelope import BadJwt, Claims, decode

_Body = TypeVar("_Body")


class SubjectLists(Struct, frozen=True, kw_only=True):
    """Subjects that are allowed and denied."""

    allow: list[str] = []
    deny: list[str] = []


class Responses(Struct, frozen=True, kw_only=True):
    """How often and for how long (nanoseconds) a reply may be sent."""

    max: int = 0
    ttl: int = 0


class TimeRange(Struct, frozen=True, kw_only=True):
    """A part of the day, `HH:MM:SS`."""

    start: str = ""
    end: str = ""


class UserLimits(Struct, frozen=True, kw_only=True):
    """What a user may do: in its own token, or in the template of a scope."""

    pub: SubjectLists = SubjectLists()
    sub: SubjectLists = SubjectLists()
    resp: Responses | None = None
    subs: int = 0
    data: int = 0
    payload: int = 0
    src: list[str] | str = []
    times: list[TimeRange] = []
    times_location: str = ""
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: list[str] = []

    @property
    def sources(self) -> list[str]:
        """The networks that the user may come from."""
        found = self.src if isinstance(self.src, list) else self.src.split(",")
        return [network.strip() for network in found if network.strip()]

    @property
    def has_permissions(self) -> bool:
        return bool(self.pub.allow or self.pub.deny or self.sub.allow or self.sub.deny or self.resp is not None)


class UserBody(UserLimits, frozen=True, kw_only=True):
    """A user's token."""

    issuer_account: str = ""
    tags: list[str] = []

    @property
    def is_unlimited_by_itself(self) -> bool:
        """True when it says nothing of permissions and limits, as a user of a scope has to."""
        silent = UserBody(issuer_account=self.issuer_account, tags=self.tags)
        return self == silent


class Scope(Struct, frozen=True, kw_only=True):
    """A signing key, with what the users may do that it signs."""

    kind: str = ""
    key: str = ""
    role: str = ""
    template: UserLimits = UserLimits()
    description: str = ""


class JetStreamLimits(Struct, frozen=True, kw_only=True):
    """What streams may take; with 0 for memory and disk there are none."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class AccountLimits(JetStreamLimits, frozen=True, kw_only=True):
    """The limits of an account."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, JetStreamLimits] = {}


class ServiceLatency(Struct, frozen=True, kw_only=True):
    """Where it is told how long a service takes. The sampling is in per cent; `headers`, or 0, leaves it to headers."""

    sampling: int | str = 0
    results: str = ""

    @property
    def percent(self) -> int:
        """How many of 100; 0 where the headers of requests say so."""
        return self.sampling if isinstance(self.sampling, int) else 0


class MsgTrace(Struct, frozen=True, kw_only=True):
    """Where message traces go that another system's header asks for."""

    dest: str = ""
    sampling: int = 0


class Export(Struct, frozen=True, kw_only=True):
    """What an account offers to others."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: int = 0  # nanoseconds
    service_latency: ServiceLatency | None = None
    account_token_position: int = 0
    advertise: bool = False
    allow_trace: bool = False


class Import(Struct, frozen=True, kw_only=True):
    """What an account has from another."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False

    @property
    def local(self) -> str:
        """What it is called by the importer. (`to` of a service is the other way round: see `wanted`.)"""
        if self.local_subject:
            return self.local_subject
        if self.type == "service":
            return self.subject
        return f"{self.to}.{self.subject}" if self.to else self.subject

    @property
    def wanted(self) -> str:
        """What it is called by the exporter."""
        return self.to if self.type == "service" and self.to and not self.local_subject else self.subject


class MappingTarget(Struct, frozen=True, kw_only=True):
    """Where a part of the messages of a subject goes."""

    subject: str = ""
    weight: int = 0
    cluster: str = ""


class ExternalAuthorization(Struct, frozen=True, kw_only=True):
    """Who checks the users of an account."""

    auth_users: list[str] = []
    allowed_accounts: list[str] = []
    xkey: str = ""


class AccountBody(Struct, frozen=True, kw_only=True):
    """An account's token."""

    limits: AccountLimits = AccountLimits()
    signing_keys: list[str | Scope] = []
    revocations: dict[str, int] = {}
    default_permissions: UserLimits = UserLimits()
    imports: list[Import] = []
    exports: list[Export] = []
    mappings: dict[str, list[MappingTarget]] = {}
    authorization: ExternalAuthorization = ExternalAuthorization()
    trace: MsgTrace = MsgTrace()
    cluster_traffic: str = ""
    tags: list[str] = []

    @property
    def scopes(self) -> dict[str, Scope | None]:
        """The signing keys; None for those without a scope."""
        return dict((key, None) if isinstance(key, str) else (key.key, key) for key in self.signing_keys)


class OperatorBody(Struct, frozen=True, kw_only=True):
    """An operator's token."""

    signing_keys: list[str] = []
    account_server_url: str = ""
    operator_service_urls: list[str] = []
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False
    tags: list[str] = []


class ActivationBody(Struct, frozen=True, kw_only=True):
    """Leave to import what is not for everybody."""

    subject: str = ""
    kind: str = ""
    issuer_account: str = ""


def read_operator(text: str) -> tuple[Claims, OperatorBody]:
    """An operator's token. Raises BadJwt."""
    return _read(text, "operator", OperatorBody, (nkeys.OPERATOR,), nkeys.OPERATOR)


def read_account(text: str) -> tuple[Claims, AccountBody]:
    """An account's token. Raises BadJwt."""
    return _read(text, "account", AccountBody, (nkeys.OPERATOR, nkeys.ACCOUNT), nkeys.ACCOUNT)


def read_user(text: str) -> tuple[Claims, UserBody]:
    """A user's token. Raises BadJwt."""
    return _read(text, "user", UserBody, (nkeys.ACCOUNT,), nkeys.USER)


def read_activation(text: str) -> tuple[Claims, ActivationBody]:
    """An activation token. Raises BadJwt."""
    return _read(text, "activation", ActivationBody, (nkeys.ACCOUNT, nkeys.OPERATOR), nkeys.ACCOUNT)


def _read(text: str, kind: str, body: type[_Body], issuers: tuple[int, ...], subject: int) -> tuple[Claims, _Body]:
    claims = decode(text, *issuers)
    if claims.type != kind:
        raise BadJwt(f"not {kind} claim")
    if not nkeys.is_public(claims.sub, subject):
        raise BadJwt(f"the subject of the {kind} claim is not a public key of that kind")
    return claims, convert(claims.nats, body)


def convert(found: dict[str, Any], body: type[_Body]) -> _Body:
    """Claims with their types. Raises BadJwt."""
    try:
        return msgspec.convert(found, body)
    except msgspec.ValidationError as error:
        raise BadJwt(f"claims: {error}") from None
