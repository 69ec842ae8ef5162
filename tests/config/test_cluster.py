"""config/cluster.py: the block and its flags."""

from __future__ import annotations

import pytest

from jetlake.config import ClusterOptions, ConfigError, load_text, parse_args


def cluster(text: str) -> ClusterOptions:
    options = load_text(f"cluster {{ {text} }}", "f.conf", {})
    assert options.warnings == () and options.cluster is not None
    return options.cluster


def flags(*argv: str) -> ClusterOptions | None:
    return parse_args(argv, {})[1].cluster


def failure(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_text(f"cluster {{ {text} }}", "f.conf", {})
    return raised.value.problem


def flags_failure(*argv: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_args(argv, {})
    return str(raised.value)


def test_the_block_says_where_servers_come_in_and_which_to_connect_to() -> None:
    found = cluster(
        """
        name: C, listen: "127.0.0.1:-1", no_advertise: true, cluster_advertise: "a.example:7000"
        authorization { user: u, password: p, timeout: 0.5 }
        routes: ["nats-route://u:p@127.0.0.1:6222", "nats://b.example:6222"]
        connect_retries: 3, connect_backoff: true, ping_interval: "5s", ping_max: 4
        pool_size: -1, compression: off
        """
    )
    assert (found.name, found.host, found.port, found.advertise) == ("C", "127.0.0.1", -1, "a.example:7000")
    assert (found.username, found.password, found.auth_timeout_s) == ("u", "p", 0.5)
    assert found.routes == ("nats-route://u:p@127.0.0.1:6222", "nats://b.example:6222")
    assert (found.connect_retries, found.connect_backoff, found.no_advertise) == (3, True, True)
    assert (found.ping_interval_s, found.ping_max) == (5.0, 4)


def test_no_password_shows_when_options_are_printed() -> None:
    found = cluster('port: 1, authorization { user: u, password: hush }, routes: ["nats://u:hush@a:1"]')
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name: "a b"', "name: cluster name cannot contain spaces or tabs"),
        ("authorization { token: t }", "authorization: Cluster authorization does not support tokens"),
        ("authorization { users: [] }", "authorization: Cluster authorization does not allow multiple users"),
        ("pool_size: -1, accounts: [A]", "cluster: pool_size cannot be negative if pinned accounts are specified"),
        ("accounts: [A, A]", 'cluster: found duplicate account name "A" in pinned accounts list'),
        ("permissions {}", "'permissions' in cluster is not supported yet"),
        ("route: []", "unknown key 'route' in cluster; did you mean 'routes'?"),
        ("advertise: 'a b:1'", "advertise: expected host:port, found 'a b:1'"),
        ("tls { cert_file: a }", "cluster: 'key_file' of tls is missing"),
    ],
)
def test_a_mistake_is_a_clear_error(text: str, problem: str) -> None:
    assert failure(text) == problem


@pytest.mark.parametrize("url", ["", "a", "nats://a", "nats://:1", "nats://a:x", "nats://u:hush@a"])
def test_a_route_needs_a_host_and_a_port(url: str) -> None:
    problem = failure(f'routes: ["{url}"]')
    assert problem.startswith("error parsing route url [") and "hush" not in problem


def test_what_has_no_effect_is_a_warning() -> None:
    text = 'pool_size: 5, accounts: [A], compression: s2_fast, ping_interval: "2m", routes: ["a://b:1", "a://b:1"]'
    options = load_text(f"cluster {{ {text} }}", "f.conf", {})
    assert options.cluster is not None and options.cluster.ping_interval_s == 30
    assert [warning.partition(": ")[2] for warning in options.warnings] == [
        "will reset to 30s which is the max for routes",
        "Duplicate route entry detected",
        "'pool_size' in cluster is not supported yet and has no effect",
        "'accounts' in cluster is not supported yet and has no effect",
        "'compression' in cluster is not supported yet and has no effect",
    ]


def test_flags_make_a_cluster() -> None:
    found = flags(
        "--cluster", "nats://u:p%40@127.0.0.1:-1", "--cluster_name=C", "--routes", "nats-route://a:1, nats://b:2",
        "--cluster_advertise", "c:3", "--no_advertise", "--connect_retries", "2",
    )  # fmt: skip
    assert found == ClusterOptions(
        name="C",
        host="127.0.0.1",
        port=-1,
        username="u",
        password="p@",
        routes=("nats-route://a:1", "nats://b:2"),
        advertise="c:3",
        no_advertise=True,
        connect_retries=2,
    )


def test_flags_that_say_nothing_make_none() -> None:
    assert flags("--routes", "", "--cluster_name=") is None and flags() is None


def test_an_empty_cluster_flag_turns_the_cluster_of_the_file_off(tmp_path: object) -> None:
    assert flags("--cluster_listen", "") is None


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--routes", "nats://a:1"], "solicited routes require cluster capabilities, e.g. --cluster"),
        (["--cluster", "1"], "expected a cluster URL such as nats://host:6222"),
        (["--cluster", "nats://host"], "expected a cluster URL such as nats://host:6222"),
        (["--cluster", "nats://u@host:1"], "expected cluster password to be set"),
        (["--cluster_name", "a b"], "cluster name cannot contain spaces or tabs"),
        (["--cluster_advertise", "a:b"], "expected host:port, found 'a:b'"),
    ],
)
def test_wrong_flags_are_a_clear_error(argv: list[str], problem: str) -> None:
    assert flags_failure(*argv) == problem
