"""What a cluster tells about its groups on `$JS.EVENT.ADVISORY.…`.

An account hears of its own streams and consumers. The system account hears of all of them, with the account's name, and
of the meta group (`DOMAIN.LEADER_ELECTED`, whose leader is a peer id) and of servers that were removed.
"""

from __future__ import annotations

from typing import Any

from jetlake.broker.account import Account
from jetlake.cluster.info import all_replicas
from jetlake.cluster.view import ClusterView, GroupStatus, server_name
from jetlake.jetstream.advisories import ADVISORY_PREFIX, encode_event, is_heard
from jetlake.subjects import encode_subject

_TYPE = "io.nats.jetstream.advisory.v1."


class GroupAdvisories:
    """Tells of groups."""

    def __init__(self, view: ClusterView, system: Account) -> None:
        self._view, self._system = view, system

    def stream_leader(self, account: Account, stream: str, status: GroupStatus) -> None:
        """A stream has a leader."""
        fields = {"stream": stream, "leader": server_name(self._view, status.leader)}
        self._tell(account, f"STREAM.LEADER_ELECTED.{stream}", "stream_leader_elected", fields, status)

    def stream_quorum_lost(self, account: Account, stream: str, status: GroupStatus) -> None:
        """A stream has too few servers to go on."""
        fields = {"stream": stream}
        self._tell(account, f"STREAM.QUORUM_LOST.{stream}", "stream_quorum_lost", fields, status)

    def consumer_leader(self, account: Account, stream: str, consumer: str, status: GroupStatus) -> None:
        """A consumer has a server that delivers for it."""
        fields = {"stream": stream, "consumer": consumer, "leader": server_name(self._view, status.leader)}
        subject = f"CONSUMER.LEADER_ELECTED.{stream}.{consumer}"
        self._tell(account, subject, "consumer_leader_elected", fields, status)

    def consumer_quorum_lost(self, account: Account, stream: str, consumer: str, status: GroupStatus) -> None:
        """A consumer's stream has too few servers to go on."""
        fields = {"stream": stream, "consumer": consumer}
        subject = f"CONSUMER.QUORUM_LOST.{stream}.{consumer}"
        self._tell(account, subject, "consumer_quorum_lost", fields, status)

    def meta_leader(self, status: GroupStatus) -> None:
        """This server leads the meta group."""
        replicas = all_replicas(self._view, status)
        fields = {"leader": status.leader, "replicas": replicas, "cluster": self._view.name}
        self._send(self._system, "DOMAIN.LEADER_ELECTED", "domain_leader_elected", fields)

    def server_removed(self, name: str, server_id: str) -> None:
        """A server is no member of the cluster any more."""
        fields = {"server": name, "server_id": server_id, "cluster": self._view.name}
        self._send(self._system, "SERVER.REMOVED", "server_removed", fields)

    def _tell(self, account: Account, subject: str, type: str, fields: dict[str, Any], status: GroupStatus) -> None:
        fields = {**fields, "replicas": all_replicas(self._view, status)}
        self._send(account, subject, type, fields)
        if account is not self._system:
            self._send(self._system, subject, type, {"account": account.name, **fields})

    def _send(self, account: Account, subject: str, type: str, fields: dict[str, Any]) -> None:
        full = encode_subject(ADVISORY_PREFIX + subject)
        if is_heard(account, full):
            account.send(full, encode_event(self._view.host, _TYPE + type, fields))
