"""A client's connection: how a socket becomes a `broker.Client`, and how the client logs in."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from jetlake.broker.auth import Credentials
from jetlake.broker.client import Client
from jetlake.broker.endpoint import Endpoint
from jetlake.config import WebSocketOptions
from jetlake.server.address import peer_of
from jetlake.server.peer_connection import PeerConnection
from jetlake.server.turns import Turns
from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.server.server import Server


class ClientConnection(PeerConnection):
    """One client's socket."""

    def __init__(self, server: Server, endpoint: Endpoint | None = None) -> None:
        """`endpoint` says where the client comes from, if the socket does not."""
        super().__init__(server)
        self._endpoint = endpoint
        self.client: Client | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._use_transport(transport)
        if self.client is None:
            endpoint = self._endpoint or Endpoint(*peer_of(transport.get_extra_info("peername")))
            self.peer = self.client = self._server.accept(self, endpoint)
        if not self._take_certificate():
            return
        if not self.is_greeted:  # a TLS listener greets before there is a transport
            self.client.send(writer.info(self._server.broker.info(self.client)))
        self._start()

    def _take_certificate(self) -> bool:
        """Look at the certificate of a client, where that matters; False when it is not one of those expected."""
        session, client, websocket = self._ssl_object(), self.client, self._websocket_options()
        options = websocket.tls if websocket is not None else self._server.options.tls
        if options is None or session is None or client is None:
            return True
        certificate = session.getpeercert(binary_form=True)
        if options.verify_and_map:
            client.certificate = certificate or b""
        if options.pinned_certs:
            from jetlake.broker.certificates import is_pinned

            if not is_pinned(certificate, options.pinned_certs):
                self._server.log("error", f"{self._server.broker.label(client)} - Failed pinned cert test")
                client.close("TLS Handshake Failure")
                self.abort()
                return False
        return True

    def _start(self) -> None:
        """See to it that the client logs in and stays alive."""
        client, server = self.client, self._server
        assert client is not None
        if server.broker.is_full():
            client.refuse("maximum connections exceeded")
        elif server.broker.auth_required(client):
            self._set_timer("login", self._login_timeout_s(), self._auth_timeout)
        self._start_pings()
        server.flush()

    def _login_timeout_s(self) -> float:
        websocket = self._websocket_options()
        own = websocket.authorization if websocket is not None else None
        return (own.timeout_s if own is not None else None) or self._server.options.auth_timeout_s

    def _ping_interval_s(self) -> float:
        websocket = self._websocket_options()
        return (websocket.ping_interval_s if websocket is not None else 0) or self._server.options.ping_interval_s

    def _websocket_options(self) -> WebSocketOptions | None:
        is_websocket = self.client is not None and self.client.endpoint.is_websocket
        return self._server.options.websocket if is_websocket else None

    def check_login(self, credentials: Credentials) -> None:
        self._cancel_timer("login")  # it said who it is: what takes time now is ours
        self.hold()
        self._server.spawn(self._check_login(credentials))

    async def _check_login(self, credentials: Credentials) -> None:
        client = self.client
        assert client is not None
        turns = Turns()
        try:
            while client.forget_some():  # which it had as who it was before
                await turns.pause()
            client.finish_login(await self._server.check(client, credentials))
            rest, self._rest = bytearray(self._rest), b""
            with self._server.commits:
                self._act(rest, len(rest))
        except Exception as error:
            self._failed("login", error)
        self._server.flush()
        self.release()

    def _auth_timeout(self) -> None:
        if self.client is not None and not self.client.is_connected and not self.client.is_closed:
            self.client.refuse("Authentication Timeout")
            self._server.flush()

    def tls_claims(self) -> dict[str, Any]:
        """The version, the cipher and the certificate of a secure connection, for a service that checks clients."""
        details, session = self.tls_details(), self._ssl_object()
        if session is None or not details:
            return {}
        claims: dict[str, Any] = {"version": details["tls_version"], "cipher": details["tls_cipher_suite"]}
        certificate = session.getpeercert(binary_form=True)
        if certificate is not None:
            claims["verified_chains"] = [[ssl.DER_cert_to_PEM_cert(certificate)]]
        return claims

    def _ssl_object(self) -> ssl.SSLObject | None:
        session = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return session if isinstance(session, ssl.SSLObject) else None
