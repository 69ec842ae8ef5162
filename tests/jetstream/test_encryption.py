"""Encryption at rest: turned on, with another key or cipher, with the wrong key, over crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetlake.broker.account import Account
from jetlake.config.options import AccountJetStream, AccountOptions, JetStreamOptions, ServerOptions
from jetlake.jetstream.encryption import STATE_NAME
from jetlake.jetstream.service import JetStream
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.store.blocks.block_file import read_header
from jetlake.store.blocks.sealed_file import is_sealed
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.testing.memfiles import MemFiles, PowerCut
from tests.jetstream.harness import FakeHost, InProcess
from tests.jetstream.test_service import ask, streams_dir, tree

SECRETS = (b"secret", b"SECRET", b"top.")


@pytest.fixture(autouse=True)
def fast_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passphrases that cost no time; the store's salt still counts."""

    class Quick:
        def __init__(self, salt: bytes, **cost: int) -> None:
            self._salt = salt

        def derive(self, secret: bytes) -> bytes:
            return (self._salt + secret * 32)[:32]

    monkeypatch.setattr("cryptography.hazmat.primitives.kdf.scrypt.Scrypt", Quick)


def server(directory: Path, key: str = "", prev_key: str = "", cipher: str = "chachapoly") -> InProcess:
    limits = {"max_memory": 1 << 30, "max_store": 1 << 30}
    jetstream = JetStreamOptions(enabled=True, key=key, prev_key=prev_key, cipher=cipher, **limits)
    return InProcess(str(directory), FakeHost(options=ServerOptions(server_name="test", jetstream=jetstream)))


def fill(directory: Path, **keys: str) -> None:
    """A stream of three messages with a consumer that has one of them pending."""
    on = server(directory, **keys)
    ask(on, "STREAM.CREATE.S", {"name": "S", "subjects": ["top.>"], "description": "secret"})
    for number in range(3):
        on.request(f"top.{number}", b"secret %d" % number)
    ask(on, "CONSUMER.CREATE.S.SECRETC", {"stream_name": "S", "config": {"durable_name": "SECRETC"}})
    on.stop()


def check(on: InProcess, messages: int = 3) -> None:
    """The stream and its consumer are there."""
    info = ask(on, "STREAM.INFO.S")
    assert (info["state"]["messages"], info["config"]["description"]) == (messages, "secret")
    assert ask(on, "CONSUMER.INFO.S.SECRETC")["num_pending"] == messages


def refused(on: InProcess) -> None:
    assert ask(on, "STREAM.INFO.S")["error"]["err_code"] == 10194
    assert ask(on, "STREAM.CREATE.NEW", {"name": "NEW"})["error"]["code"] == 500
    assert [line for level, line in on.host.lines if level == "error" and "nothing stored is opened" in line]
    on.stop()


def assert_nothing_readable(directory: Path) -> None:
    for path, data in tree(directory).items():
        assert not [secret for secret in SECRETS if secret in data or secret.decode() in path.name], path


@pytest.mark.parametrize("cipher", ["chachapoly", "aes"])
def test_a_key_that_is_given_later_encrypts_everything_at_once(tmp_path: Path, cipher: str) -> None:
    fill(tmp_path)
    (streams_dir(tmp_path) / "S" / "spark.json").write_bytes(b"a secret job")
    on = server(tmp_path, "k1", cipher=cipher)
    check(on)
    on.request("top.3", b"secret 3")
    assert_nothing_readable(tmp_path)  # also while it runs
    check(on, 4)
    on.stop()
    assert_nothing_readable(tmp_path)
    assert any("streams encrypted count=1" in line for _, line in on.host.lines)
    again = server(tmp_path, "k1", cipher=cipher)
    check(again, 4)
    assert not any("encrypted" in line for _, line in again.host.lines)


def test_what_an_encrypted_server_makes_is_encrypted(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    assert_nothing_readable(tmp_path)
    sealed = [path.name for path, data in tree(tmp_path).items() if is_sealed(data)]
    assert {"meta.json", "stream.state", STATE_NAME} < set(sealed) and len(sealed) == 4
    check(server(tmp_path, "k1"))


@pytest.mark.parametrize("wrong", ["wrong", ""])
@pytest.mark.parametrize("first", [{}, {"key": "k1"}], ids=["converted", "encrypted"])
def test_a_wrong_key_is_refused_and_touches_nothing(tmp_path: Path, first: dict[str, str], wrong: str) -> None:
    fill(tmp_path, **first)
    server(tmp_path, "k1").stop()
    before = tree(tmp_path)
    refused(server(tmp_path, wrong))
    assert tree(tmp_path) == before
    check(server(tmp_path, "k1"))


def test_after_a_rotation_the_old_key_is_not_needed_and_not_enough(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    on = server(tmp_path, "k2", "k1")
    check(on)
    on.stop()
    before = tree(tmp_path)
    refused(server(tmp_path, "k1"))
    assert tree(tmp_path) == before
    check(server(tmp_path, "k2"))


def test_the_old_key_alone_beside_no_key_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    before = tree(tmp_path)
    refused(server(tmp_path, "", "k1"))
    assert tree(tmp_path) == before


def test_a_wrong_previous_key_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    before = tree(tmp_path)
    refused(server(tmp_path, "k3", "k2"))
    assert tree(tmp_path) == before


def test_another_cipher_converts_too(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    on = server(tmp_path, "k1", cipher="aes")
    check(on)
    headers = [read_header(OS_FILES, str(path)) for path in tmp_path.rglob("*.blk")]
    assert {header.cipher for header in headers if header} == {2}
    assert all(data[9] == 2 for data in tree(tmp_path).values() if is_sealed(data))


def test_streams_of_accounts_that_are_not_enabled_are_converted_as_well(tmp_path: Path) -> None:
    def service(accounts: str, key: str) -> JetStream:
        options = ServerOptions(
            server_name="test",
            accounts={name: AccountOptions(name=name, jetstream=AccountJetStream()) for name in accounts},
            jetstream=JetStreamOptions(enabled=True, max_memory=1 << 30, max_store=1 << 30, key=key),
        )
        found = JetStream(FakeHost(options=options), str(tmp_path))
        found.start([Account(name) for name in accounts])
        return found

    on = service("AB", "")
    on.accounts["B"].create(StreamConfig(name="S", subjects=("top.>",), description="secret"))
    on.stop()
    service("A", "k1").stop()
    assert_nothing_readable(tmp_path)
    assert list(service("AB", "k1").accounts["B"].streams) == ["S"]


@pytest.mark.damages
@pytest.mark.parametrize("name", ["meta.json", "consumer"])
def test_a_plain_file_is_refused_once_everything_is_encrypted(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    stream = streams_dir(tmp_path) / "S"
    (consumer,) = (stream / "consumers").iterdir()
    plain = {"meta.json": (stream / "meta.json").read_bytes(), "consumer": consumer.read_bytes()}[name]
    server(tmp_path, "k1").stop()
    (consumer,) = (stream / "consumers").iterdir()
    (stream / "meta.json" if name == "meta.json" else consumer).write_bytes(plain)
    on = server(tmp_path, "k1")
    if name == "meta.json":
        assert "not encrypted" in ask(on, "STREAM.INFO.S")["error"]["description"]
    else:
        assert "not encrypted" in ask(on, "CONSUMER.INFO.S.SECRETC")["error"]["description"]


@pytest.mark.damages
def test_a_consumer_of_another_stream_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    on = server(tmp_path, "k1")
    ask(on, "STREAM.CREATE.T", {"name": "T", "subjects": ["other.>"]})
    ask(on, "CONSUMER.CREATE.T.SECRETC", {"stream_name": "T", "config": {"durable_name": "SECRETC"}})
    on.stop()
    (mine,), (other,) = [list((streams_dir(tmp_path) / name / "consumers").iterdir()) for name in "ST"]
    mine.write_bytes(other.read_bytes())
    on = server(tmp_path, "k1")
    assert "does not authenticate" in ask(on, "CONSUMER.INFO.S.SECRETC")["error"]["description"]


@pytest.mark.damages
def test_without_its_state_file_a_server_finds_out_again(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    (tmp_path / "jetstream" / STATE_NAME).unlink()
    before = tree(tmp_path)
    refused(server(tmp_path, "wrong"))
    assert tree(tmp_path) == before
    on = server(tmp_path, "k1")
    check(on)
    on.stop()
    data = bytearray((tmp_path / "jetstream" / STATE_NAME).read_bytes())
    data[70] ^= 1
    (tmp_path / "jetstream" / STATE_NAME).write_bytes(data)
    check(server(tmp_path, "k1"))


@pytest.mark.damages
def test_a_stream_that_cannot_be_converted_keeps_the_old_key_valid(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    meta = streams_dir(tmp_path) / "S" / "meta.json"
    good = meta.read_bytes()
    meta.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    on = server(tmp_path, "k2", "k1")
    assert any("streams not encrypted count=1" in line for level, line in on.host.lines if level == "warning")
    on.stop()
    meta.write_bytes(good)
    check(server(tmp_path, "k2", "k1"))


@pytest.mark.damages
def test_damaged_consumers_are_encrypted_too(tmp_path: Path) -> None:
    fill(tmp_path)
    (file,) = (streams_dir(tmp_path) / "S" / "consumers").iterdir()
    data = file.read_bytes()
    file.with_name(f"{file.name}.replaced").write_bytes(data)
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    on = server(tmp_path, "k1")
    assert_nothing_readable(tmp_path)
    assert "expected hash" in ask(on, "CONSUMER.INFO.S.SECRETC")["error"]["description"]
    on.stop()
    server(tmp_path, "k2", "k1").stop()
    found = sorted(path.name.count(".") for path in file.parent.iterdir())
    assert found == [1, 2] and all(is_sealed(path.read_bytes()) for path in file.parent.iterdir())


@pytest.mark.damages
def test_messages_without_a_configuration_are_not_called_encrypted(tmp_path: Path) -> None:
    fill(tmp_path)
    (streams_dir(tmp_path) / "S" / "meta.json").unlink()
    on = server(tmp_path, "k1")
    assert any("streams not encrypted count=1" in line for level, line in on.host.lines if level == "warning")


@pytest.mark.damages
def test_after_a_rotation_files_under_the_old_key_are_refused_even_if_it_is_still_given(tmp_path: Path) -> None:
    fill(tmp_path, key="k1")
    meta = streams_dir(tmp_path) / "S" / "meta.json"
    old = meta.read_bytes()
    server(tmp_path, "k2", "k1").stop()
    meta.write_bytes(old)
    assert "another key" in ask(server(tmp_path, "k2", "k1"), "STREAM.INFO.S")["error"]["description"]


def test_a_compression_that_is_changed_holds_for_the_next_message(tmp_path: Path) -> None:
    fill(tmp_path)
    on = server(tmp_path)
    config = ask(on, "STREAM.INFO.S")["config"]
    assert ask(on, "STREAM.UPDATE.S", {**config, "compression": "s2"})["config"]["compression"] == "s2"
    on.request("top.3", b"secret 3")
    on.host.settle()
    headers = [read_header(OS_FILES, str(path)) for path in tmp_path.rglob("*.blk")]
    assert {header.compression for header in headers if header} == {1}
    check(on, 4)
    on.stop()
    check(server(tmp_path), 4)


# Crashes


def start(files: Files, key: str = "", prev_key: str = "") -> JetStream:
    jetstream = JetStreamOptions(enabled=True, key=key, prev_key=prev_key, max_memory=1 << 30, max_store=1 << 30)
    host = FakeHost(options=ServerOptions(server_name="test", jetstream=jetstream))
    service = JetStream(host, "d", files=files)
    service.start([Account("$G")])
    host.settle()
    return service


def state(service: JetStream) -> Any:
    (account,) = service.accounts.values()
    return {
        name: (stream.store.state().msgs, stream.config.description, sorted(stream.consumers))
        for name, stream in account.streams.items()
    }


@pytest.mark.parametrize("keep", ["none", "all"])
@pytest.mark.parametrize(
    ("before", "after"), [(("", ""), ("k1", "")), (("k1", ""), ("k2", "k1"))], ids=["on", "rotate"]
)
def test_a_power_cut_at_any_point_of_a_start_that_converts_costs_nothing(
    before: tuple[str, str], after: tuple[str, str], keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetlake.jetstream.service.machine_storage", lambda directory: 1 << 40)
    fill(tmp_path, key=before[0])
    contents = {str(path.relative_to(tmp_path)): data for path, data in tree(tmp_path).items()}
    begin = MemFiles.from_snapshot({f"d/{name}": data for name, data in contents.items()})
    whole = begin.copy()
    expected = {"S": (3, "secret", ["SECRETC"])}
    assert state(start(whole, *after)) == expected
    for number in range(begin.op_count + 1, whole.op_count + 1):
        files = begin.copy()
        files.cut(number)
        with pytest.raises(PowerCut):
            start(files, *after)
        left = files.after_cut(keep=keep)
        again = start(left, *after)
        assert state(again) == expected
        again.stop()
        assert not [secret for secret in SECRETS if secret in b"".join(left.snapshot().values())]
        assert state(start(left.after_cut(), after[0])) == expected


def test_remotes_and_schedules_are_encrypted_and_follow_a_rotation(tmp_path: Path) -> None:
    on = server(tmp_path)
    ask(on, "STREAM.CREATE.S", {"name": "S", "subjects": ["top.>"], "allow_msg_schedules": True})
    headers = b"NATS/1.0\r\nNats-Schedule: @every 1h\r\nNats-Schedule-Target: top.t\r\n\r\n"
    on.request("top.schedule", b"", headers)
    on.request("$JETLAKE.API.REMOTE.PUT.prod", b'{"urls":["nats://top.secret:4222"],"token":"secret"}')
    on.stop()
    server(tmp_path, key="first").stop()
    assert not [path for path, data in tree(tmp_path).items() if b"secret" in data or b"top." in data]
    server(tmp_path, key="second", prev_key="first").stop()
    on = server(tmp_path, key="second")
    assert on.js.remotes.find("prod").token == "secret"
    on.host.settle()
    assert on.js.streams["S"].machine.schedules.get("top.schedule") is not None
    assert not [line for level, line in on.host.lines if level in ("warning", "error")]
    on.stop()
