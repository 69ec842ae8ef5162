"""Monitoring over HTTPS, with the certificates of the server."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.compat.servers import LOOPBACK, START_S_MAX, command
from tests.server.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def running(kind: str, directory: Path, config: str) -> Iterator[str]:
    """A server without the port for HTTP that others have; the URL of its monitoring port."""
    (directory / "server.conf").write_text(config)
    arguments = [*command(kind), "-a", LOOPBACK, "-p", "-1", "-c", "server.conf", "--ports_file_dir", str(directory)]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd=directory)
    try:
        stop = time.monotonic() + START_S_MAX
        while not (found := list(directory.glob("*.ports"))) or not found[0].read_text().endswith("}"):
            assert process.poll() is None and time.monotonic() < stop, (directory / "log").read_text()
            time.sleep(0.01)
        yield json.loads(found[0].read_text())["monitoring"][0]
    finally:
        process.kill()
        process.wait()


def get(url: str, context: ssl.SSLContext) -> Any:
    with urlopen(url, timeout=10, context=context) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("words", ["https: '127.0.0.1:-1'", "https_port: -1"])
def test_pages_are_served_over_tls_and_no_certificate_is_asked_for(
    kind: str, tmp_path: Path, certificates: Certificates, words: str
) -> None:
    tls = certificates.block(f'ca_file: "{certificates.path("ca", "crt")}", verify: true')
    with running(kind, tmp_path, f"{words}\n{tls}") as url:
        assert url.startswith("https://")
        varz = get(f"{url}/varz", certificates.context())
        assert varz["http_port"] == 0 and varz["https_port"] != 0
        assert get(f"{url}/healthz", certificates.context()) == {"status": "ok"}
        with pytest.raises((URLError, OSError)):
            urlopen(f"{url.replace('https', 'http')}/varz", timeout=10).read(1)
        with pytest.raises(URLError):
            get(f"{url}/varz", ssl.create_default_context())
        assert get(f"{url}/healthz", certificates.context()) == {"status": "ok"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("https_port: -1", "TLS cert and key required for HTTPS"),
        ("https_port: -1\nhttp_port: -1\nTLS", "can't specify both HTTP (-1) and HTTPs (-1) ports"),
    ],
)
def test_what_cannot_be_served_stops_the_server(
    kind: str, tmp_path: Path, certificates: Certificates, config: str, problem: str
) -> None:
    with pytest.raises(AssertionError) as raised, running(kind, tmp_path, config.replace("TLS", certificates.block())):
        pass
    assert f"Can't start monitoring: {problem}" in str(raised.value)
