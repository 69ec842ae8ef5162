"""config/sections.py, auth.py and read.py: values to options."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.config import (
    AccountJetStream,
    Authorization,
    ConfigError,
    JetStreamLimits,
    JetStreamOptions,
    LeafOptions,
    Permissions,
    ResponsePermission,
    ServerOptions,
    SubjectPermission,
    TlsOptions,
    User,
    WebOrigin,
    WebSocketOptions,
    load_file,
    load_text,
)
from jetlake.config.sections import SERVER

NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def loaded(text: str) -> ServerOptions:
    options = load_text(text, "f.conf", {})
    assert options.warnings == ()
    return options


def failure(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_text(text, "f.conf", {})
    assert raised.value.line is not None
    return str(raised.value)


def test_defaults_are_those_of_nats_server() -> None:
    options = ServerOptions()
    assert (options.host, options.port, options.http_port) == ("0.0.0.0", 4222, 0)
    assert (options.max_payload, options.max_control_line, options.max_pending) == (1 << 20, 4096, 64 << 20)
    assert (options.ping_interval_s, options.ping_max, options.write_deadline_s) == (120, 2, 10)
    assert (options.max_connections, options.auth_timeout_s) == (65536, 2)
    assert options.jetstream.sync_always and not options.jetstream.enabled


def test_general_keys() -> None:
    options = loaded(
        """
        host: 127.0.0.1, port: -1
        http: "127.0.0.1:-1"
        server_name: s1
        server_tags: [a, b]
        ports_file_dir: /tmp/p
        pid_file: /tmp/x.pid
        max_payload: 2MB
        max_connections: 0
        max_subscriptions: 10
        max_control_line: 1KB
        max_pending: 8MB
        write_deadline: "2s"
        ping_interval: "100ms"
        ping_max: 3
        debug: true, trace: true, logtime: false
        log_file: /tmp/l
        lame_duck_duration: "30s"
        lame_duck_grace_period: "1s"
        allow_non_tls: true
        """
    )
    assert (options.host, options.port, options.http_host, options.http_port) == ("127.0.0.1", -1, "127.0.0.1", -1)
    assert (options.server_name, options.server_tags) == ("s1", ("a", "b"))
    assert (options.ports_file_dir, options.pid_file, options.log_file) == ("/tmp/p", "/tmp/x.pid", "/tmp/l")
    assert (options.max_payload, options.max_connections, options.max_subscriptions) == (2 << 20, -1, 10)
    assert (options.max_control_line, options.max_pending) == (1024, 8 << 20)
    assert (options.write_deadline_s, options.ping_interval_s, options.ping_max) == (2, 0.1, 3)
    assert (options.debug, options.trace, options.logtime, options.allow_non_tls) == (True, True, False, True)
    assert (options.lame_duck_duration_s, options.lame_duck_grace_period_s) == (30, 1)


def test_keys_are_read_in_any_case() -> None:
    assert loaded("Port: 1\nJetStream { Store_Dir: x }").jetstream.store_dir == "x"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("listen: 5000", "0.0.0.0", 5000),
        ("listen: -1", "0.0.0.0", -1),
        ("listen: '1.2.3.4:5000'", "1.2.3.4", 5000),
        ("listen: localhost:-1", "localhost", -1),
        ("listen: ':5000'", "0.0.0.0", 5000),
        ("listen: '[::1]:5000'", "::1", 5000),
        ("net: h\nport: 0", "h", 4222),
    ],
)
def test_listen_gives_host_and_port(text: str, host: str, port: int) -> None:
    options = loaded(text)
    assert (options.host, options.port) == (host, port)


@pytest.mark.parametrize("key", ["http_port", "monitor_port", "http"])
def test_monitoring_takes_a_port(key: str) -> None:
    assert loaded(f"{key}: 8222").http_port == 8222


# ---------------------------------------------------------------------------------------------- jetstream


@pytest.mark.parametrize(
    ("text", "enabled"),
    [("true", True), ("enabled", True), ("{}", True), ("disabled", False), ("false", False), ("{enabled: no}", False)],
)
def test_jetstream_is_enabled_by_a_word_or_a_block(text: str, enabled: bool) -> None:
    assert loaded(f"jetstream: {text}").jetstream.enabled is enabled


def test_the_jetstream_block() -> None:
    options = loaded(
        """
        jetstream {
            store_dir: /data, max_file_store: 1MB, max_memory_store: "2G", domain: hub
            sync_interval: "10s", strict: false, key: secret, cipher: aes
            limits { max_ack_pending: 10, duplicate_window: "2m", batch { max_msgs: 5, timeout: "1s" } }
        }
        """
    )
    assert options.jetstream == JetStreamOptions(
        enabled=True,
        store_dir="/data",
        max_store=1 << 20,
        max_memory=2 << 30,
        domain="hub",
        sync_always=False,
        sync_interval_s=10,
        strict=False,
        key="secret",
        cipher="aes",
        limits=JetStreamLimits(
            max_ack_pending=10, duplicate_window_ns=120_000_000_000, batch_max_msgs=5, batch_timeout_ns=1_000_000_000
        ),
    )


def test_sync_interval_always_waits_for_every_sync() -> None:
    assert loaded("jetstream { sync_interval: always }").jetstream.sync_always


def test_store_dir_may_stand_on_the_top_level_but_not_twice() -> None:
    assert loaded("store_dir: x\njetstream: true").jetstream == JetStreamOptions(enabled=True, store_dir="x")
    assert failure("jetstream { store_dir: x }\nstore_dir: y").startswith("f.conf:2:1: 'store_dir' is set twice")


# ---------------------------------------------------------------------------------------------- authorization


def test_a_token_or_a_single_user() -> None:
    assert loaded("authorization { token: t, timeout: 0.5 }").authorization == Authorization(token="t", timeout_s=0.5)
    options = loaded('authorization { username: u, pass: "p", timeout: "3s" }')
    assert options.authorization == Authorization(username="u", password="p", timeout_s=3)
    assert options.auth_timeout_s == 3


def test_users_with_permissions_in_every_style() -> None:
    options = loaded(
        f"""
        P: {{ publish: ">" }}
        authorization {{
            default_permissions {{ subscribe: {{ deny: "secret.>" }} }}
            users = [
                {{user: a, password: $2a$11$hash, permissions: {{ publish: foo, subscribe: ["a.*", "b q"] }}}}
                {{user: b, permission: {{ pub: {{allow: [x, y], deny: z}}, sub: {{deny: [">"]}} }} }},
                {{user: c, permissions: {{ allow_responses: true }} }}
                {{user: d, permissions: {{ publish: p, allow_responses: {{ max: 5, expires: "1m" }} }} }}
                {{nkey: {NKEY}, permissions: $P, allowed_connection_types: [standard] }}
                {{user: f, pass: x}}
            ]
        }}
        """
    )
    a, b, c, d, e, f = options.users
    assert a.password == "$2a$11$hash"
    assert a.permissions == Permissions(SubjectPermission(("foo",)), SubjectPermission(("a.*", "b q")))
    assert b.permissions == Permissions(SubjectPermission(("x", "y"), ("z",)), SubjectPermission(None, (">",)))
    assert c.permissions == Permissions(SubjectPermission(()), None, ResponsePermission(1, 120))
    assert d.permissions == Permissions(SubjectPermission(("p",)), None, ResponsePermission(5, 60))
    assert (e.name, e.allowed_connection_types) == (NKEY, frozenset({"STANDARD"}))
    assert f == User(username="f", password="x", permissions=Permissions(None, SubjectPermission(None, ("secret.>",))))


def test_an_empty_array_of_subjects_allows_all_and_warns() -> None:
    options = load_text("authorization { users: [{user: a, permissions: {publish: []}}] }", "f.conf", {})
    assert options.users[0].permissions == Permissions(SubjectPermission(None))
    assert "allows them all" in options.warnings[0]


def test_accounts_hold_users_and_limits() -> None:
    options = loaded(
        """
        accounts {
            A { users: [{user: a, password: a}], jetstream: enabled }
            B {
                users: [{user: b, password: b}]
                jetstream { max_mem: 1MB, max_file: 2MB, max_streams: 3, max_consumers: 4, max_ack_pending: 5
                            memory_max_stream_bytes: 6, store_max_stream_bytes: 7, max_stream_bytes: true }
                limits { max_connections: 8, max_subs: 9, max_payload: 10 }
            }
            SYS { users: [{user: sys, password: x}] }
        }
        no_auth_user: a
        system_account: SYS
        """
    )
    assert list(options.accounts) == ["A", "B", "SYS"]
    assert options.accounts["A"].jetstream == AccountJetStream()
    assert options.accounts["B"].jetstream == AccountJetStream(
        max_memory=1 << 20,
        max_store=2 << 20,
        max_streams=3,
        max_consumers=4,
        max_ack_pending=5,
        memory_max_stream_bytes=6,
        store_max_stream_bytes=7,
        max_bytes_required=True,
    )
    b = options.accounts["B"]
    assert (b.max_connections, b.max_subscriptions, b.max_payload) == (8, 9, 10)
    assert options.accounts["SYS"].jetstream is None
    assert [(user.name, user.account) for user in options.users] == [("a", "A"), ("b", "B"), ("sys", "SYS")]
    assert (options.no_auth_user, options.system_account) == ("a", "SYS")


def test_accounts_may_be_an_array_of_names() -> None:
    assert list(loaded("accounts: [A, B]").accounts) == ["A", "B"]


# ---------------------------------------------------------------------------------------------- listeners


def test_the_tls_block() -> None:
    options = loaded("tls { cert_file: c, key_file: k, ca_file: a, verify: true, timeout: 2.5, handshake_first: true }")
    assert options.tls == TlsOptions(
        cert_file="c", key_file="k", ca_file="a", verify=True, timeout_s=2.5, handshake_first=True
    )
    assert options.auth_timeout_s == 3.5


@pytest.mark.parametrize(("text", "fallback_s"), [("auto", 0.05), ("'300ms'", 0.3)])
def test_handshake_first_may_fall_back(text: str, fallback_s: float) -> None:
    tls = loaded(f"tls {{ cert_file: c, key_file: k, handshake_first: {text} }}").tls
    assert tls and tls.handshake_first and tls.handshake_first_fallback_s == fallback_s


def test_a_listener_for_leafs_has_its_address() -> None:
    options = load_text('leafnodes { listen: "127.0.0.1:-1" }', "f.conf", {})
    assert options.leafnodes == LeafOptions(host="127.0.0.1", port=-1) and not options.warnings


def test_websocket() -> None:
    text = """websocket { listen: "127.0.0.1:8080", no_tls: true, compression: true, handshake_timeout: 5s
        same_origin: true, allowed_origins: ["https://a.com", "http://B.com:81"], user_cookie: u, pass_cookie: p
        token_cookie: t, authorization { user: w, password: s, timeout: 3 }, headers { X-A: b }, ping_interval: 20s }"""
    assert loaded(text).websocket == WebSocketOptions(
        host="127.0.0.1",
        port=8080,
        no_tls=True,
        compression=True,
        handshake_timeout_s=5.0,
        same_origin=True,
        allowed_origins=frozenset({WebOrigin("https", "a.com", 443), WebOrigin("http", "b.com", 81)}),
        user_cookie="u",
        pass_cookie="p",
        token_cookie="t",
        authorization=Authorization(username="w", password="s", timeout_s=3.0),
        headers={"X-A": "b"},
        ping_interval_s=20.0,
    )
    assert loaded("websocket { port: 8080, tls { cert_file: c, key_file: k } }").websocket is not None


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("port: 80", "requires TLS configuration"),
        ("port: 80, no_tls: true, allowed_origins: [a.com]", "unable to parse allowed origin"),
        ("port: 80, no_tls: true, allowed_origins: ['ftp://a.com']", "http or https scheme"),
        ("port: 80, no_tls: true, allowed_origins: 'http://'", "host is required"),
        ("port: 80, no_tls: true, headers { Host: a }", "part of the handshake"),
        ("port: 80, no_tls: true, headers { Sec-WebSocket-Protocol: a }", "part of the handshake"),
        ('port: 80, no_tls: true, headers { X: "a\\r\\nY: b" }', "not a header of one line"),
        ("port: 80, no_tls: true, no_auth_user: nobody", "no_auth_user 'nobody'"),
        ("port: 80, no_tls: true, authorization { users: [{user: a}] }", "belong in the general authorization"),
    ],
)
def test_what_websocket_may_not_say(block: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        loaded(f"websocket {{ {block} }}")


def test_a_user_for_websocket_alone_cannot_stand_beside_users() -> None:
    text = "websocket { port: 80, no_tls: true, authorization { user: w } }\nauthorization { users: [{user: a}] }"
    with pytest.raises(ConfigError, match="not compatible with presence of users"):
        loaded(text)


def test_a_key_without_effect_is_accepted_with_a_warning() -> None:
    options = load_text("prof_port: 1", "f.conf", {})
    assert options.warnings == ("f.conf:1:1: 'prof_port' is not supported yet and has no effect",)


def test_what_is_not_supported_may_be_turned_off() -> None:
    assert load_text("ocsp: false\nproxies {}\nwrite_timeout: close", "f.conf", {}).warnings == ()


def test_an_empty_file_is_worth_a_warning() -> None:
    assert load_text("", "f.conf", {}).warnings == ("f.conf: the configuration is empty",)


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("key", ["gateway", "mqtt", "ocsp_cache"])
def test_what_is_not_supported_yet_is_refused_by_name(key: str) -> None:
    assert failure(f"port: 1\n {key} {{ }}") == f"f.conf:2:2: '{key}' is not supported yet"


def test_parts_of_blocks_are_refused_by_name() -> None:
    text = "leafnodes { remotes: [{url: x,\n proxy: {}}] }"
    assert failure(text) == "f.conf:2:2: 'proxy' in a remote of leafnodes is not supported yet"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", "f.conf:1:1: unknown key 'prot'; did you mean 'port'?"),
        ("x: 1\njetstreem {}", "f.conf:1:1: unknown key 'x'"),
        ("jetstream {\n storedir_: x }", "f.conf:2:2: unknown key 'storedir_' in jetstream; did you mean 'store_dir'?"),
        ("authorization { tokem: x }", "f.conf:1:17: unknown key 'tokem' in authorization; did you mean 'token'?"),
        ("port: abc", "f.conf:1:7: port: expected an integer, found a string"),
        ("port: 70000", "f.conf:1:7: port: expected an integer from -1 to 65535, found 70000"),
        ("debug: 1", "f.conf:1:8: debug: expected a boolean (true or false), found an integer"),
        ("host: 1", "f.conf:1:7: host: expected a string in quotes, found an integer"),
        ("server_tags: {}", "f.conf:1:14: server_tags: expected a string or an array of strings, found a map"),
        (
            "jetstream: 1",
            "f.conf:1:12: jetstream: expected a boolean, 'enabled', 'disabled' or a map, found an integer",
        ),
        ("jetstream: maybe", "f.conf:1:12: jetstream: expected 'enabled' or 'disabled', found 'maybe'"),
        ("authorization: x", "f.conf:1:16: authorization: expected a map, found a string"),
        ("ping_interval: x", 'f.conf:1:16: ping_interval: expected a duration such as "2m", "1m30s" or "100ms"'),
        (
            "ping_interval: 2m",
            'f.conf:1:16: ping_interval: expected a duration in quotes such as "2m"; without quotes, m is a million',
        ),
        ("listen: foo", "f.conf:1:9: listen: expected a port or \"host:port\", found 'foo'"),
        ("server_name: 'a b'", "f.conf:1:14: server_name: a server name cannot contain spaces"),
        ("lame_duck_duration: '5s'", "f.conf:1:21: lame_duck_duration: expected at least 30 seconds"),
        ("max_payload: 3GB", "f.conf:1:14: max_payload: expected an integer from 0 to 2147483647, found 3221225472"),
        ("max_pending: 1000", "f.conf:1:1: max_payload 1048576 is larger than max_pending 1000"),
        ("tls { key_file: k }", "f.conf:1:5: tls: 'cert_file' is missing"),
        ("no_auth_user: x", "f.conf:1:1: no_auth_user 'x' is not a user of authorization or of an account"),
        ("system_account: x", "f.conf:1:1: system_account 'x' is not in accounts"),
        ("accounts { $G {} }", "f.conf:1:15: the account name '$G' is reserved"),
        ("authorization { users: [{pass: x}] }", "f.conf:1:25: a user needs a name ('user') or an 'nkey'"),
        ("accounts [A, A]", "f.conf:1:14: the account 'A' is defined twice"),
        ("write_timeout: x", "f.conf:1:16: write_timeout: expected 'default', 'close' or 'retry', found 'x'"),
        ("ocsp: true", "f.conf:1:7: ocsp: is not supported yet"),
        ("proxies { trusted: [{}] }", "f.conf:1:21: expected the public nkey of a proxy as its 'key'"),
        ("authorization { users: [{user: a}, {user: a}] }", "f.conf:1:1: the user 'a' is defined twice"),
        (
            "authorization { token: x, user: y }",
            "f.conf:1:15: authorization: a token cannot stand beside a user and password",
        ),
        (
            "authorization { token: x, users: [{user: a}] }",
            "f.conf:1:15: authorization: an array of users cannot stand beside a token or a single user",
        ),
        (
            "authorization { users: [{nkey: UABC}] }",
            "f.conf:1:32: nkey: expected a public nkey of a user: 56 characters that start with U",
        ),
        (
            "authorization { users: [{user: a, permissions: {publish: 'a..b'}}] }",
            "f.conf:1:58: publish: expected a subject: subject 'a..b': has an empty token",
        ),
        (
            "authorization { users: [{user: a, clients: [x]}] }",
            "f.conf:1:44: clients: unknown connection type 'X': expected IN_PROCESS, LEAFNODE, LEAFNODE_WS, MQTT, "
            "MQTT_WS, STANDARD, WEBSOCKET",
        ),
    ],
)
def test_a_mistake_is_an_error_that_says_what_was_expected(text: str, message: str) -> None:
    assert failure(text) == message


def test_errors_never_show_a_wrong_password() -> None:
    assert "1234" not in failure("authorization { user: u, password: 1234 }")


def test_printed_options_never_show_a_secret() -> None:
    text = "jetstream { key: s3cret }\nauthorization { users: [{user: a, password: s3cret}] }"
    assert "s3cret" not in repr(loaded(text)) and "password=***" in repr(loaded(text))
    assert "s3cret" not in repr(loaded("authorization { token: s3cret }"))


def test_a_key_used_as_a_variable_may_have_any_name() -> None:
    assert loaded("MY_PORT: 5000\nport: $MY_PORT").port == 5000
    assert failure("MY_PORT: 5000\nport: 1").startswith("f.conf:1:1: unknown key 'MY_PORT'")


def test_seconds_as_a_number_are_accepted_with_a_warning() -> None:
    options = load_text("ping_interval: 20", "f.conf", {})
    assert options.ping_interval_s == 20
    assert options.warnings == ('f.conf:1:1: should be a duration: "20s"',)


def test_an_error_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include b.conf")
    (tmp_path / "b.conf").write_text("\nprot: 1")
    with pytest.raises(ConfigError, match=r"b\.conf:2:1: unknown key 'prot'; did you mean 'port'\?"):
        load_file(tmp_path / "a.conf", {})
    (tmp_path / "b.conf").write_text("port: 7")
    options = load_file(tmp_path / "a.conf", {})
    assert (options.port, options.config_file) == (7, str(tmp_path / "a.conf"))


_VALUES = st.recursive(
    st.sampled_from(
        ["1", "-1", "2m", "1.5", "true", "x", '"1s"', '"a..b"', "always", "1KB", '""', "9e", "$2a$x", "$V"]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.dictionaries(
            st.sampled_from([*SERVER.keys, "user", "users", "publish", "allow", "store_dir", "cert_file", "A"]),
            inner,
            max_size=4,
        ).map(lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(SERVER.keys)), _VALUES, max_size=3))
def test_any_values_give_options_or_a_config_error(entries: dict[str, str]) -> None:
    text = "V: {user: a}\nx_ { y: $V }\n" + "\n".join(f"{key}: {value}" for key, value in entries.items())
    for attempt in (text, text.replace("x_ { y: $V }\n", "")):
        try:
            options = load_text(attempt, environ={})
        except ConfigError:
            continue
        assert isinstance(options, ServerOptions)
