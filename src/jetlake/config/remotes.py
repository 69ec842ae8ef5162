"""The `remotes` of JetStream: servers whose streams are copied, by name."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from jetlake.config.options import RemoteOptions
from jetlake.config.read import Reader, Section, keys, string
from jetlake.config.value import Value

DEFAULT_PORT = 4222
_SCHEMES = ("nats", "tls")


def client_url(text: str) -> str:
    """A URL of a NATS server with scheme and port; raises ValueError."""
    found = urlsplit(text if "://" in text else f"nats://{text}")
    if found.scheme not in _SCHEMES or not found.hostname:
        raise ValueError(f"expected a URL such as nats://host:{DEFAULT_PORT}")
    return (
        found.geturl() if found.port else found._replace(netloc=f"{found.netloc.rstrip(':')}:{DEFAULT_PORT}").geturl()
    )


def is_remote_name(name: str) -> bool:
    """Whether a remote may have this name, which is a token of a subject."""
    return name.replace("-", "").replace("_", "").isalnum() and name.isascii()


def _urls(value: Value, warnings: list[str]) -> tuple[str, ...]:
    found = []
    for item in value.data if isinstance(value.data, list) else [value]:
        try:
            found.append(client_url(string(item, warnings)))
        except ValueError as error:
            raise item.error(str(error)) from None
    return tuple(found)


def remotes_reader(tls: Reader) -> Reader:
    """A reader of the block: a map of names to remotes."""

    def tls_or_flag(value: Value, warnings: list[str]) -> object:
        return tls(replace(value, data={}) if value.data is True else value, warnings)

    section = Section(
        "a remote of jetstream",
        keys(
            urls=("url urls", _urls),
            account=("", string),
            user=("user username", string),
            password=("pass password", string),
            token=("", string),
            nkey_seed=("nkey seed", string),
            credentials=("credentials creds", string),
            tls=("", tls_or_flag),
            domain=("", string),
            inbox_prefix=("", string),
        ),
    )

    def read(value: Value, warnings: list[str]) -> tuple[RemoteOptions, ...]:
        if not isinstance(value.data, dict):
            raise value.error("expected a map of names to remotes")
        remotes = []
        for name, item in value.data.items():
            if not is_remote_name(name):
                raise item.error(f"{name!r} is no name for a remote: letters, digits, - and _ are")
            remote = RemoteOptions(name=name, **section.read(item, warnings))
            if not remote.urls:
                raise item.error("a remote needs 'urls'")
            remotes.append(remote)
        return tuple(remotes)

    return read
