"""Readers of files whose server was cut off."""

from __future__ import annotations

from typing import Any

import pytest

from jetlake.errors import StoreError
from jetlake.store.disk.files import Files
from jetlake.store.redo.at_rest import check_at_rest
from jetlake.store.redo.replay import replay
from jetlake.store.view import StreamView
from jetlake.testing.memfiles import MemFiles
from tests.store.redo.test_redo_log import ROOT, Server


def _server() -> Server:
    server = Server(MemFiles())
    server.create("S1", "S2")
    server.publish(b"hello", "S1", "S2")
    return server


def test_beside_a_server_everything_is_there() -> None:
    server = _server()
    check_at_rest(server.disk, server.directory("S1"))
    assert StreamView(server.directory("S1"), files=server.disk).refresh().last_seq == 1


def test_after_a_power_cut_a_reader_refuses_until_the_server_was_started() -> None:
    server = _server()
    server.redo.retire()
    server.publish(b"more", "S1", "S2")
    disk = server.disk.after_cut()
    view = StreamView(server.directory("S1"), files=disk)
    with pytest.raises(StoreError, match="start the server once"):
        view.refresh()
    replay(disk, ROOT)
    assert view.refresh().last_seq == 2


def test_a_log_that_changes_meanwhile_is_that_of_a_server_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _server()
    looks: list[Any] = []

    def unapplied(files: Files, root: str, below: str) -> list[str]:
        looks.append(below)
        server.publish(b"more", "S1", "S2")
        return ["something"]

    monkeypatch.setattr("jetlake.store.redo.at_rest.unapplied", unapplied)
    check_at_rest(server.disk, server.directory("S1"))
    assert len(looks) > 1


def test_a_directory_without_a_server_has_no_log() -> None:
    files = MemFiles()
    files.make_dirs("a/b/c")
    check_at_rest(files, "a/b/c")
