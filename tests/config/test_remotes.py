"""The `remotes` of JetStream in a configuration file."""

from __future__ import annotations

import pytest

from jetlake.config import ConfigError, RemoteOptions, TlsOptions, load_text
from jetlake.config.remotes import client_url


def remotes(text: str) -> tuple[RemoteOptions, ...]:
    return load_text(f"jetstream {{ remotes {text} }}").jetstream.remotes


def test_remotes_are_read_by_name() -> None:
    first, second = remotes(
        '{ prod { urls: ["a", "tls://b:1"], creds: "x.creds", account: A },'
        "  edge { url: c, user: u, password: p, tls: true } }"
    )
    assert first == RemoteOptions(name="prod", urls=("nats://a:4222", "tls://b:1"), credentials="x.creds", account="A")
    assert (second.user, second.password, second.tls) == ("u", "p", TlsOptions())


def test_secrets_do_not_show() -> None:
    (remote,) = remotes('{ prod { url: "nats://u:hidden@a", password: hidden, token: hidden, nkey: hidden } }')
    assert "hidden" not in repr(remote)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{ prod {} }",
        '{ prod { url: "http://a" } }',
        '{ "a.b" { url: a } }',
        "{ prod { url: a, unknown: 1 } }",
    ],
)
def test_what_is_no_remote_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        remotes(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host", "nats://host:4222"),
        ("nats://u:p@host", "nats://u:p@host:4222"),
        ("tls://[::1]:5", "tls://[::1]:5"),
        ("nats://[::1]", "nats://[::1]:4222"),
    ],
)
def test_urls_have_a_scheme_and_a_port(text: str, url: str) -> None:
    assert client_url(text) == url
