"""Remotes through a running server, on `$JETLAKE.API.REMOTE.…`: nats-server has nothing like it.

    PUT.<name>      {"urls": ["nats://prod:4222"], "creds": "-----BEGIN NATS USER JWT…"}     name a remote, or change it
    DELETE.<name>   forget it
    LIST            {"remotes": [{"name": "prod", "urls": ["nats://prod:4222"], "is_configured": false}]}: no secrets

A remote has one of `user` and `password`, `token`, `nkey` (a seed) and `creds` (what is in a credentials file). `tls`
asks for TLS, `ca` are certificates (PEM) to trust then. `domain` is that of JetStream there, `inbox_prefix` is where
answers go.
"""

from __future__ import annotations

import msgspec

from jetlake.config.options import RemoteOptions, TlsOptions
from jetlake.config.remotes import client_url, is_remote_name
from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.sourcing.remotes import COUNT_MAX
from jetlake.jetstream.streams.rules import is_valid_subject


class _Put(msgspec.Struct, forbid_unknown_fields=True):
    urls: list[str]
    user: str = ""
    password: str = ""
    token: str = ""
    nkey: str = ""
    creds: str = ""
    tls: bool = False
    ca: str = ""
    domain: str = ""
    inbox_prefix: str = "_INBOX"


def _put(request: Request) -> None:
    _check_allowed(request)
    (name,), remotes = request.names, request.account.remotes
    if not is_remote_name(name):
        raise errors.STREAM_INVALID_CONFIG(f"{name!r} is no name for a remote: letters, digits, - and _ are")
    known = remotes.all()
    if any(each.name == name and is_configured for each, is_configured in known):
        raise errors.STREAM_INVALID_CONFIG(f"remote {name} is configured: change the configuration")
    if len(known) >= COUNT_MAX and remotes.find(name) is None:
        raise errors.STREAM_INVALID_CONFIG(f"there are {COUNT_MAX} remotes already")
    remotes.put(_read(request, name))
    request.reply({"name": name})


def _read(request: Request, name: str) -> RemoteOptions:
    try:
        put = msgspec.json.decode(request.payload, type=_Put)
        urls = tuple(map(client_url, put.urls))
    except (msgspec.MsgspecError, ValueError) as error:
        raise errors.INVALID_JSON(str(error)) from None
    if not urls:
        raise errors.INVALID_JSON("a remote needs urls")
    if not is_valid_subject(put.inbox_prefix) or (put.domain and not is_remote_name(put.domain)):
        raise errors.INVALID_JSON("inbox_prefix or domain is not valid")
    return RemoteOptions(
        name=name,
        urls=urls,
        user=put.user,
        password=put.password,
        token=put.token,
        nkey_seed=put.nkey,
        creds=put.creds,
        tls=TlsOptions() if put.tls or put.ca else None,
        ca_pem=put.ca,
        domain=put.domain,
        inbox_prefix=put.inbox_prefix,
    )


def _delete(request: Request) -> None:
    _check_allowed(request)
    (name,) = request.names
    if not request.account.remotes.delete(name):
        raise errors.STREAM_INVALID_CONFIG(f"remote {name} is not known, or is in the configuration")
    request.reply({"success": True})


def _list(request: Request) -> None:
    remotes = [
        {"name": remote.name, "urls": [_shown(url) for url in remote.urls], "is_configured": is_configured}
        for remote, is_configured in request.account.remotes.all()
    ]
    request.reply({"remotes": remotes})


def _check_allowed(request: Request) -> None:
    if not request.host.options.may_name_remotes:
        raise errors.STREAM_INVALID_CONFIG("remotes come from the configuration only, without allow_remote_api: true")


def _shown(url: str) -> str:
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


ENDPOINTS = [
    Endpoint("REMOTE.PUT.*", "remote_put_response", _put, is_secret=True),
    Endpoint("REMOTE.DELETE.*", "remote_delete_response", _delete),
    Endpoint("REMOTE.LIST", "remote_list_response", _list),
]
