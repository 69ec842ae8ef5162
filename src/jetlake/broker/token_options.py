"""What tokens say, as the options that a configuration file would give."""

from __future__ import annotations

from jetlake import jwt
from jetlake.broker.permissions import (
    RESPONSES_EXPIRES_NS_DEFAULT,
    RESPONSES_MAX_DEFAULT,
    Permissions,
    ResponsePermission,
)
from jetlake.clock import SECOND_NS
from jetlake.config import AccountJetStream, AccountOptions, Export, Latency, MappingDestination, MappingOptions
from jetlake.jwt.claims import JetStreamLimits, MappingTarget, UserLimits

_RESPONSE_TYPES = {"Stream": "streamed", "Chunked": "chunked"}
_WEIGHT_DEFAULT = 100
_THRESHOLD_S_DEFAULT = 120.0
SAMPLING_MAX = 100
_TIER = "R1"  # the streams of a single server have one replica


def account_options(claims: jwt.Claims, body: jwt.AccountBody) -> AccountOptions:
    """An account by its token, without its imports: these depend on other accounts."""
    limits = body.limits
    return AccountOptions(
        name=claims.sub,
        nkey=claims.sub,
        name_tag=claims.name,
        jetstream=_jetstream(limits),
        max_connections=limits.conn,
        max_subscriptions=limits.subs,
        max_payload=limits.payload,
        max_leafs=limits.leaf,
        trace_dest=body.trace.dest,
        trace_sampling=body.trace.sampling or SAMPLING_MAX,
        exports=tuple(map(_export, body.exports)),
        mappings=tuple(MappingOptions(source, tuple(map(_target, to))) for source, to in body.mappings.items()),
    )


def _target(found: MappingTarget) -> MappingDestination:
    return MappingDestination(found.subject, found.weight or _WEIGHT_DEFAULT, found.cluster)


def _jetstream(limits: jwt.AccountLimits) -> AccountJetStream | None:
    tiered = limits.tiered_limits
    tiers = {name: _limits(tier) for name, tier in tiered.items() if tier.mem_storage or tier.disk_storage}
    if tiers:
        own = tiered.get(_TIER, JetStreamLimits())
        return _limits(own, tiers)
    return _limits(limits) if limits.mem_storage or limits.disk_storage else None


def _limits(limits: JetStreamLimits, tiers: dict[str, AccountJetStream] | None = None) -> AccountJetStream:
    return AccountJetStream(
        max_memory=limits.mem_storage,
        max_store=limits.disk_storage,
        max_streams=limits.streams,
        max_consumers=limits.consumer,
        max_ack_pending=limits.max_ack_pending,
        memory_max_stream_bytes=limits.mem_max_stream_bytes,
        store_max_stream_bytes=limits.disk_max_stream_bytes,
        max_bytes_required=limits.max_bytes_required,
        tiers=tiers or {},
    )


def _export(found: jwt.Export) -> Export:
    return Export(
        kind=found.type,
        subject=found.subject,
        account_token_position=found.account_token_position,
        response_type=_RESPONSE_TYPES.get(found.response_type, "singleton"),
        response_threshold_s=found.response_threshold / SECOND_NS or _THRESHOLD_S_DEFAULT,
        latency=_latency(found.service_latency),
        allow_trace=found.allow_trace,
        needs_token=found.token_req,
        revocations=found.revocations,
    )


def _latency(found: jwt.ServiceLatency | None) -> Latency | None:
    return Latency(found.results, found.percent) if found is not None and found.results else None


def user_permissions(limits: UserLimits) -> Permissions | None:
    """What a user may do; None where nothing is said. Raises BadSubject."""
    if not limits.has_permissions:
        return None
    responses = None
    if limits.resp is not None:
        responses = ResponsePermission(
            limits.resp.max or RESPONSES_MAX_DEFAULT, limits.resp.ttl or RESPONSES_EXPIRES_NS_DEFAULT
        )
    return Permissions(limits.pub.allow, limits.pub.deny, limits.sub.allow, limits.sub.deny, responses)
