"""config/flags.py: the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.config import Action, Authorization, ConfigError, JetStreamOptions, ServerOptions, TlsOptions, parse_args


def run(*argv: str) -> ServerOptions:
    action, options = parse_args(argv, {})
    assert action is Action.RUN
    return options


def failure(*argv: str) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_args(argv, {})
    return str(raised.value)


def test_no_flags_give_the_defaults() -> None:
    assert run() == ServerOptions()


@pytest.mark.parametrize("flags", ["-p 5", "--p 5", "-port 5", "--port 5", "-p=5", "--port=5", "-p 4 --port=5"])
def test_flags_take_one_or_two_dashes_and_a_value_either_way(flags: str) -> None:
    assert run(*flags.split()).port == 5


def test_minus_one_is_a_random_port_and_zero_the_default() -> None:
    assert run("-p", "-1", "-m=-1") == ServerOptions(port=-1, http_port=-1)
    assert run("-p", "0").port == 4222


def test_launch_style_a() -> None:
    options = run(
        *("-p", "4222", "-m", "8222", "-a", "127.0.0.1", "--user", "U", "--pass", "P", "-DV", "-js", "-sd=/tmp/d"),
        *("--tls", "--tlscert", "C", "--tlskey", "K", "--tlsverify", "--tlscacert", "A"),
    )
    assert options == ServerOptions(
        host="127.0.0.1",
        http_port=8222,
        authorization=Authorization(username="U", password="P"),
        debug=True,
        trace=True,
        jetstream=JetStreamOptions(enabled=True, store_dir="/tmp/d"),
        tls=TlsOptions(cert_file="C", key_file="K", ca_file="A", verify=True),
    )
    assert run("--auth", "T").authorization == Authorization(token="T")


def test_launch_style_b() -> None:
    options = run(*["--port", "-1", "--addr", "H", "--debug", "--jetstream", "--store_dir", "D", "--server_name", "N"])
    assert options == ServerOptions(
        port=-1, host="H", debug=True, server_name="N", jetstream=JetStreamOptions(enabled=True, store_dir="D")
    )


def test_the_other_flags() -> None:
    options = run("-n", "N", "-P", "pid", "-l", "log", "--ports_file_dir", "p", "-D", "-V", "-T=false", "--net", "h")
    assert (options.server_name, options.pid_file, options.log_file, options.ports_file_dir) == ("N", "pid", "log", "p")
    assert (options.debug, options.trace, options.logtime, options.host) == (True, True, False, "h")
    assert run("-DVV") == ServerOptions(debug=True, trace=True, trace_verbose=True)


def test_flags_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text(
        "port: 1\ndebug: true\nmax_payload: 1KB\njetstream { store_dir: x, domain: d }\n"
        "tls { cert_file: c, key_file: k, timeout: 5 }\nauthorization { user: a, pass: b }"
    )
    options = run("-p", "2", "-D=false", "-c", str(file), "-sd", "y", "--pass", "z", "--tlscert=C", "--tlskey=K")
    assert (options.port, options.debug, options.max_payload) == (2, False, 1024)
    assert options.jetstream == JetStreamOptions(enabled=True, store_dir="y", domain="d")
    assert options.authorization == Authorization(username="a", password="z")
    assert options.tls == TlsOptions(cert_file="C", key_file="K", timeout_s=5)
    assert run("--config", str(file), "--tls=false", "-js=false") == run("-c", str(file), "--tls=0", "--js=f")
    assert run("--config", str(file), "--tls=false").tls is None


@pytest.mark.parametrize("argv", [["--signal", "stop=1"], ["-sl=stop=1"], ["-c", "missing", "-sl", "stop=1"]])
def test_a_signal_is_all_that_counts(argv: list[str]) -> None:
    action, options = parse_args(argv)
    assert (action, options) == (Action.SIGNAL, ServerOptions(signal="stop=1"))


def test_an_empty_signal_is_none() -> None:
    assert parse_args(["--signal", ""])[0] is Action.RUN


@pytest.mark.parametrize(
    ("argv", "action"),
    [
        (["-v"], Action.VERSION),
        (["--version"], Action.VERSION),
        (["version"], Action.VERSION),
        (["-h"], Action.HELP),
        (["--help"], Action.HELP),
        (["help"], Action.HELP),
        (["-c", "missing", "-h"], Action.HELP),
    ],
)
def test_help_and_version_ask_for_nothing_else(argv: list[str], action: Action) -> None:
    assert parse_args(argv, {}) == (action, ServerOptions())


def test_t_tests_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("port: 1")
    action, options = parse_args(["-t", "-c", str(file)], {})
    assert (action, options.port) == (Action.TEST, 1)
    assert failure("-t") == "-t needs a configuration file to test: -c FILE"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--bogus"], "unknown flag --bogus"),
        (["--prot=1"], "unknown flag --prot; did you mean '--port'?"),
        (["-p"], "flag -p needs a value"),
        (["-p", "x"], "flag -p: expected an integer, found 'x'"),
        (["--port=99999"], "flag --port: expected a port or -1, found 99999"),
        (["-js=maybe"], "flag -js: expected true or false, found 'maybe'"),
        (["serve"], "unrecognized command 'serve': expected flags, 'help' or 'version'"),
        (["--tls"], "TLS needs a certificate and its key: --tlscert is missing"),
        (["-n", "a b"], "a server name cannot contain spaces"),
    ],
)
def test_a_wrong_command_line_is_a_clear_error(argv: list[str], message: str) -> None:
    assert failure(*argv) == message


def test_a_flag_without_effect_is_a_warning() -> None:
    assert run("--profile", "1").warnings == ("flag --profile is not supported yet and has no effect",)


@given(st.lists(st.one_of(st.text(), st.sampled_from(["-p", "-1", "--tls", "-c", "-js", "--", "-", "-D=", "=1"]))))
def test_any_arguments_give_options_or_a_config_error(argv: list[str]) -> None:
    try:
        action, _ = parse_args(argv, {})
    except ConfigError:
        return
    assert isinstance(action, Action)
