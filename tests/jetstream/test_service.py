"""JetStream from start to stop: recovery, damage, locks, accounts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jetlake.broker.account import Account
from jetlake.config.options import AccountJetStream, AccountOptions, JetStreamOptions, ServerOptions
from jetlake.errors import StoreLocked
from jetlake.jetstream.service import JetStream, enabled_accounts
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.jetstream.streams.meta import StreamMeta, encode_meta
from tests.jetstream.harness import FakeHost, InProcess


def ask(on: InProcess, subject: str, body: Any = None) -> dict[str, Any]:
    payload = json.dumps(body).encode() if body is not None else b""
    answer: dict[str, Any] = json.loads(on.request(f"$JS.API.{subject}", payload)[0][1])
    return answer


def fill(directory: Path, *names: str) -> None:
    """Make streams with three messages each, and stop."""
    on = InProcess(str(directory))
    for name in names:
        ask(on, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
        for number in range(3):
            on.request(f"{name}.{number}", b"payload")
    on.stop()


def streams_dir(directory: Path) -> Path:
    return directory / "jetstream" / "%24G" / "streams"


def names(on: InProcess) -> list[str]:
    found: list[str] = ask(on, "STREAM.NAMES")["streams"]
    return found


def test_streams_come_back_with_all_they_had(tmp_path: Path) -> None:
    on = InProcess(str(tmp_path))
    ask(on, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "max_msgs": 10, "metadata": {"k": "v"}})
    ask(on, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "max_msgs": 20, "metadata": {"k": "v"}})
    on.request("s.1", b"one"), on.request("s.2", b"two")
    before = ask(on, "STREAM.INFO.S")
    on.stop()
    again = InProcess(str(tmp_path))
    assert {**ask(again, "STREAM.INFO.S"), "ts": 0} == {**before, "ts": 0}
    assert json.loads(again.request("s.3")[0][1]) == {"stream": "S", "seq": 3}
    again.stop()


def test_streams_in_memory_do_not(tmp_path: Path) -> None:
    on = InProcess(str(tmp_path))
    ask(on, "STREAM.CREATE.S", {"name": "S", "storage": "memory"})
    on.stop()
    assert names(InProcess(str(tmp_path))) is None


def test_a_second_server_does_not_get_the_directory(tmp_path: Path) -> None:
    on = InProcess(str(tmp_path))
    with pytest.raises(StoreLocked):
        InProcess(str(tmp_path))
    on.stop()
    InProcess(str(tmp_path)).stop()


def test_recovery_says_what_it_found(tmp_path: Path) -> None:
    fill(tmp_path, "A", "B")
    on = InProcess(str(tmp_path))
    lines = [line for level, line in on.host.lines if level == "info"]
    assert any("stream recovered name=A msgs=3" in line for line in lines)
    assert "streams recovered count=2 account=$G" in lines


def test_what_a_crash_left_of_a_deleted_stream_is_removed(tmp_path: Path) -> None:
    fill(tmp_path, "A", "B")
    (streams_dir(tmp_path) / "A").rename(streams_dir(tmp_path) / "~0123456789abcdef")
    on = InProcess(str(tmp_path))
    assert names(on) == ["B"] and [path.name for path in streams_dir(tmp_path).iterdir()] == ["B"]


def test_a_creation_that_was_cut_short_can_be_repeated(tmp_path: Path) -> None:
    fill(tmp_path, "A")
    half = streams_dir(tmp_path) / "HALF"
    half.mkdir()
    (half / "meta.json.0123456789abcdef.tmp").write_bytes(b"{")
    on = InProcess(str(tmp_path))
    assert names(on) == ["A"] and not [line for level, line in on.host.lines if level == "warning"]
    assert ask(on, "STREAM.CREATE.HALF", {"name": "HALF"})["did_create"]
    on.stop()
    assert names(InProcess(str(tmp_path))) == ["A", "HALF"]
    assert sorted(path.name for path in half.iterdir()) == ["meta.json", "msgs"]


def tree(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_what_is_no_stream_is_left_alone_with_one_warning(tmp_path: Path) -> None:
    fill(tmp_path, "A")
    streams = streams_dir(tmp_path)
    for name in ("backup/A/msgs/000001.blk", "~notes/a", "x.txt"):
        (streams / name).parent.mkdir(parents=True, exist_ok=True)
        (streams / name).write_bytes(b"mine")
    mine = {path: data for path, data in tree(streams).items() if data == b"mine"}
    on = InProcess(str(tmp_path))
    assert names(on) == ["A"] and not on.js.offline
    (warning,) = [line for level, line in on.host.lines if level == "warning"]
    assert "count=3" in warning and "backup, x.txt, ~notes" in warning
    assert tree(streams).items() >= mine.items()


def test_consumers_that_outlived_their_stream_are_removed(tmp_path: Path) -> None:
    fill(tmp_path, "A", "B")
    on = InProcess(str(tmp_path))
    for name in "AB":
        ask(on, f"CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": {"durable_name": "c"}})
    on.stop()
    for name in "AB":
        (streams_dir(tmp_path) / name / "meta.json").unlink()
        shutil.rmtree(streams_dir(tmp_path) / name / "msgs")
    (streams_dir(tmp_path) / "B" / "consumers" / "mine").write_bytes(b"mine")
    on = InProcess(str(tmp_path))
    assert [path.name for path in streams_dir(tmp_path).iterdir()] == ["B"]
    assert ask(on, "STREAM.CREATE.A", {"name": "A"})["did_create"]


def test_no_stream_is_made_where_somebody_elses_files_are(tmp_path: Path) -> None:
    fill(tmp_path, "A")
    (streams_dir(tmp_path) / "backup").mkdir()
    (streams_dir(tmp_path) / "backup" / "file").write_bytes(b"mine")
    on = InProcess(str(tmp_path))
    assert ask(on, "STREAM.CREATE.backup", {"name": "backup"})["error"]["code"] == 500
    assert (streams_dir(tmp_path) / "backup" / "file").read_bytes() == b"mine"


def test_stray_files_of_a_stream_are_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, "A")
    stream = streams_dir(tmp_path) / "A"
    stray = ["x", "msgs/notes.idx", "msgs/a.0123456789abcdef.tmp", "msgs/a.blk.new", "msgs/a.blk.shred"]
    stray += ["msgs/000007.blk", "consumers/y"]
    (stream / "consumers").mkdir(exist_ok=True)
    for name in stray:
        (stream / name).write_bytes(b"mine")
    on = InProcess(str(tmp_path))
    assert names(on) == ["A"] and list(tree(stream).values()).count(b"mine") == len(stray)


def test_a_copy_of_a_consumers_file_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path, "A")
    on = InProcess(str(tmp_path))
    ask(on, "CONSUMER.CREATE.A.c", {"stream_name": "A", "config": {"durable_name": "c"}})
    on.stop()
    (file,) = (streams_dir(tmp_path) / "A" / "consumers").iterdir()
    copies = [file.with_name("0"), file.with_name(f"{file.name}.bak")]
    for copy in copies:
        shutil.copy(file, copy)
    on = InProcess(str(tmp_path))
    assert ask(on, "CONSUMER.INFO.A.c")["name"] == "c" and all(copy.exists() for copy in (file, *copies))


def damage_meta(path: Path) -> None:
    data = bytearray((path / "meta.json").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "meta.json").write_bytes(data)


def lose_meta(path: Path) -> None:
    (path / "meta.json").unlink()


def want_newer(path: Path) -> None:
    config = StreamConfig(name=path.name, metadata={"_nats.req.level": "99"})
    (path / "meta.json").write_bytes(encode_meta(StreamMeta(created_ns=1, config=config)))


@pytest.mark.damages
@pytest.mark.parametrize("spoil", [damage_meta, lose_meta, want_newer])
def test_a_stream_without_a_sound_meta_is_left_alone_and_the_others_start(tmp_path: Path, spoil: Any) -> None:
    fill(tmp_path, "A", "B")
    spoil(streams_dir(tmp_path) / "A")
    before = {path: path.read_bytes() for path in streams_dir(tmp_path).rglob("*") if path.is_file()}
    on = InProcess(str(tmp_path))
    assert names(on) == ["B"]
    assert ask(on, "STREAM.INFO.A")["error"]["err_code"] == 10194
    assert ask(on, "STREAM.CREATE.A", {"name": "A"})["error"]["err_code"] == 10194
    assert ask(on, "STREAM.LIST")["missing"] == ["A"]
    assert any(level == "error" and "stream offline name=A" in line for level, line in on.host.lines)
    assert {path: path.read_bytes() for path in before if "/A/" in str(path)} == {
        path: data for path, data in before.items() if "/A/" in str(path)
    }


def test_offline_reasons_tell_no_paths(tmp_path: Path) -> None:
    fill(tmp_path, "A")
    damage_meta(streams_dir(tmp_path) / "A")
    on = InProcess(str(tmp_path))
    assert str(tmp_path) not in ask(on, "STREAM.INFO.A")["error"]["description"]


def test_a_copied_directory_is_not_taken_for_the_stream(tmp_path: Path) -> None:
    fill(tmp_path, "A")
    shutil.copytree(streams_dir(tmp_path) / "A", streams_dir(tmp_path) / "A2")
    on = InProcess(str(tmp_path))
    assert names(on) == ["A"] and list(on.js.offline) == ["A2"]


@pytest.mark.damages
def test_a_damaged_stream_serves_what_is_sound(tmp_path: Path) -> None:
    fill(tmp_path, "A", "B")
    block = next((streams_dir(tmp_path) / "A" / "msgs").glob("*.blk"))
    (streams_dir(tmp_path) / "A" / "msgs" / "stream.state").unlink(missing_ok=True)
    data = bytearray(block.read_bytes())
    at = data.index(b"payload", data.index(b"payload") + 1)
    data[at] ^= 1
    block.write_bytes(data)
    on = InProcess(str(tmp_path))
    assert names(on) == ["A", "B"]
    state = ask(on, "STREAM.INFO.A")["state"]
    assert state["messages"] == 2 and state["last_seq"] == 3 and state["lost"]["msgs"] == [2]
    assert any(level == "warning" and "stream damaged name=A" in line for level, line in on.host.lines)


def test_an_encrypted_stream_needs_its_key(tmp_path: Path) -> None:
    def server(key: str) -> InProcess:
        jetstream = JetStreamOptions(enabled=True, key=key, max_memory=1 << 30, max_store=1 << 30)
        return InProcess(str(tmp_path), FakeHost(options=ServerOptions(server_name="test", jetstream=jetstream)))

    on = server("right")
    ask(on, "STREAM.CREATE.S", {"name": "S"}), on.request("S", b"x")
    on.stop()
    wrong = server("wrong")
    assert ask(wrong, "STREAM.INFO.S")["error"]["err_code"] == 10194
    wrong.stop()
    assert ask(server("right"), "STREAM.INFO.S")["state"]["messages"] == 1


def account(name: str, jetstream: AccountJetStream | None = None) -> AccountOptions:
    return AccountOptions(name=name, jetstream=jetstream)


def test_which_accounts_have_jetstream() -> None:
    limits = AccountJetStream(max_streams=3)
    assert enabled_accounts(ServerOptions()) == {"$G": AccountJetStream()}
    only_system = ServerOptions(accounts={"SYS": account("SYS")}, system_account="SYS")
    assert enabled_accounts(only_system) == {"$G": AccountJetStream()}
    both = ServerOptions(accounts={"A": account("A", limits), "B": account("B")})
    assert enabled_accounts(both) == {"A": limits}


def test_accounts_do_not_see_each_other(tmp_path: Path) -> None:
    options = ServerOptions(
        server_name="test",
        accounts={name: account(name, AccountJetStream()) for name in "AB"},
        jetstream=JetStreamOptions(enabled=True, max_memory=1 << 30, max_store=1 << 30),
    )
    service = JetStream(FakeHost(options=options), str(tmp_path))
    service.start([Account("A"), Account("B")])
    service.accounts["A"].create(StreamConfig(name="S", subjects=("a",)))
    service.accounts["B"].create(StreamConfig(name="S", subjects=("a",)))
    assert len(service.accounts["A"].streams) == len(service.accounts["B"].streams) == 1
    service.stop()
    again = JetStream(FakeHost(options=options), str(tmp_path))
    again.start([Account("A"), Account("B")])
    assert [list(js.streams) for js in again.accounts.values()] == [["S"], ["S"]]


def test_an_account_without_jetstream_is_told(tmp_path: Path) -> None:
    options = ServerOptions(server_name="test", accounts={"A": account("A", AccountJetStream()), "B": account("B")})
    on = InProcess(str(tmp_path), FakeHost(options=options), account="B")
    assert ask(on, "INFO")["error"]["err_code"] == 10039
    assert ask(on, "STREAM.CREATE.S", {"name": "S"})["error"]["err_code"] == 10039
    assert ask(on, "STREAM.NAMES")["streams"] is None
    assert on.request("$JS.API.DIRECT.GET.S", b'{"seq":1}') == []


def test_a_domain_has_an_api_of_its_own(tmp_path: Path) -> None:
    jetstream = JetStreamOptions(enabled=True, domain="hub", max_memory=1 << 30, max_store=1 << 30)
    on = InProcess(str(tmp_path), FakeHost(options=ServerOptions(server_name="test", jetstream=jetstream)))
    assert json.loads(on.request("$JS.hub.API.STREAM.CREATE.S", b'{"name":"S"}')[0][1])["did_create"]
    assert ask(on, "STREAM.INFO.S")["domain"] == "hub"
    assert ask(on, "INFO")["domain"] == "hub"
    assert json.loads(on.request("S")[0][1])["domain"] == "hub"


def test_without_limits_the_machine_decides(tmp_path: Path) -> None:
    options = ServerOptions(server_name="test", jetstream=JetStreamOptions(enabled=True))
    on = InProcess(str(tmp_path), FakeHost(options=options))
    assert on.service.max_memory > 0 and on.service.max_store > 0
    huge = {"name": "S", "max_bytes": 1 << 62}
    assert ask(on, "STREAM.CREATE.S", huge)["error"]["err_code"] == 10047
