"""`jetlake mirror`: copy a stream of another NATS server, and go on copying it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from jetlake.cli.terminal import AsJson, fail
from jetlake.errors import JetLakeError

_POLL_S = 0.2


def mirror(
    origin: Annotated[str, typer.Argument(metavar="URL", help="The server to copy from: nats://prod:4222.")],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Its stream.")],
    server: Annotated[str, typer.Option(help="The JetLake server, which is running.")] = "nats://127.0.0.1:4222",
    name: Annotated[str, typer.Option("--as", help="The name of the copy; the stream's own when not given.")] = "",
    remote: Annotated[str, typer.Option(help="The name of the remote; made from the URL when not given.")] = "",
    creds: Annotated[Path | None, typer.Option(metavar="FILE", help="A credentials file for the origin.")] = None,
    nkey: Annotated[Path | None, typer.Option(metavar="FILE", help="A file with an nkey seed for the origin.")] = None,
    user: Annotated[str, typer.Option(help="A user of the origin.")] = "",
    password: Annotated[str, typer.Option(envvar="JETLAKE_ORIGIN_PASSWORD", help="Its password.")] = "",
    token: Annotated[str, typer.Option(envvar="JETLAKE_ORIGIN_TOKEN", help="A token of the origin.")] = "",
    tls: Annotated[bool, typer.Option(help="Require TLS of the origin.")] = False,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificates to trust for it.")] = None,
    domain: Annotated[str, typer.Option(help="The origin's JetStream domain.")] = "",
    subject: Annotated[str, typer.Option(help="Copy these subjects only.")] = "",
    wait: Annotated[float, typer.Option(help="How many seconds to wait for the first messages.")] = 10.0,
    option: Annotated[
        list[str] | None, typer.Option("-o", help="How to reach the JetLake server: user=…, credsFile=…. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a stream of a NATS server, with client credentials only, and keep the copy up to date.

    The running JetLake server learns of the other one (a remote) and makes a mirror of its stream. Nothing changes at
    the origin; while the copy runs there is one hidden consumer, which goes by itself. Run it again to change the
    credentials. Exit code: 0 the copy runs, 2 it does not.
    """
    try:
        from jetlake.table.nats import Connection
        from jetlake.table.options import parse_options

        own = dict(each.partition("=")[::2] for each in option or ())
        fields = {
            "urls": [origin],
            "user": user,
            "password": password,
            "token": token,
            "creds": creds.read_text() if creds is not None else "",
            "nkey": nkey.read_text().strip() if nkey is not None else "",
            "tls": tls or ca is not None,
            "ca": ca.read_text() if ca is not None else "",
            "domain": domain,
        }
        remote = remote or _name_of(origin)
        with Connection(parse_options({"url": server, "stream": name or stream, **own}), "jetlake mirror") as link:
            _put_remote(link, remote, fields)
            info = _make_mirror(link, name or stream, stream, remote, subject)
            info = _await_copy(link, name or stream, info, wait)
    except (JetLakeError, OSError) as error:
        fail(error)
    found, state = info["mirror"], info["state"]
    if as_json:
        typer.echo(json.dumps({"stream": name or stream, "remote": remote, "mirror": found, "state": state}))
    if found.get("error") or found["active"] < 0:
        problem = found.get("error", {}).get("description", f"nothing is heard of it within {wait:g} s")
        fail(f"{name or stream} is there, and not copied yet: {problem}")
    if not as_json:
        typer.echo(f"{name or stream}: {state['messages']:,} messages, {found['lag']:,} to come, remote {remote}")


def _name_of(url: str) -> str:
    """A name for a server, from its host and port."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return re.sub(r"[^A-Za-z0-9_-]", "-", f"{parts.hostname or 'origin'}-{parts.port or 4222}")


def _put_remote(link: Any, name: str, fields: dict[str, Any]) -> None:
    from jetlake.table.errors import ServerError
    from jetlake.table.nats import ApiRefused

    reply = link.request(f"$JETLAKE.API.REMOTE.PUT.{name}", {key: value for key, value in fields.items() if value})
    answer = json.loads(reply.payload or b"{}")
    if "error" in answer:
        raise ApiRefused(link.where, f"remote {name}", answer["error"])
    if "type" not in answer:
        raise ServerError(f"{link.where}: not a JetLake server, or one of an older version: it knows no remotes")


def _make_mirror(link: Any, name: str, origin: str, remote: str, subject: str) -> dict[str, Any]:
    """Make the stream, unless it is there and mirrors just this."""
    mirror: dict[str, Any] = {"name": origin, "external": {"api": f"$JETLAKE.REMOTE.{remote}", "deliver": ""}}
    mirror |= {"filter_subject": subject} if subject else {}
    answer: dict[str, Any] = link.api(f"STREAM.CREATE.{name}", {"name": name, "mirror": mirror})
    return answer


def _await_copy(link: Any, name: str, info: dict[str, Any], wait_s: float) -> dict[str, Any]:
    """Wait until the origin is heard."""
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        info = link.api(f"STREAM.INFO.{name}")
        if info["mirror"]["active"] >= 0 and (info["state"]["messages"] or not info["mirror"]["lag"]):
            break
        time.sleep(_POLL_S)
    return info
