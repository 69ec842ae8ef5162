"""Exports and imports: what is read of them, and what is said of wrong ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.config import ConfigError, Export, Import, Latency, SubjectMapping, load_text
from jetlake.errors import BadRequest, BadSubject
from jetlake.subjects import is_subset, matches

OFFER = 'A { exports: [{stream: "ev.>"}, {service: "svc.*", response_type: stream, threshold: "1s"}] }'


def failure(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_text(f"accounts {{\n{text}\n}}", "f.conf", {})
    return str(raised.value).removeprefix("f.conf:")


def test_an_import_knows_what_its_export_says() -> None:
    asks = '{service: {account: A, subject: svc.x}, to: "my", share: true}, {stream: {account: A, subject: "ev.*"}}'
    accounts = load_text(f"accounts {{ B {{ imports: [{asks}] }}\n {OFFER} }}").accounts
    assert accounts["A"].exports == (
        Export(kind="stream", subject="ev.>"),
        Export(kind="service", subject="svc.*", response_type="streamed", response_threshold_s=1.0),
    )
    assert accounts["B"].imports == (
        Import(
            kind="service",
            account="A",
            subject="svc.x",
            local="my",
            share=True,
            response_type="streamed",
            response_threshold_s=1.0,
        ),
        Import(kind="stream", account="A", subject="ev.*", local="ev.*"),
    )


def test_a_narrower_export_does_not_hide_a_wider_one() -> None:
    text = "A { exports: [{stream: a.b, accounts: [C]}, {stream: 'a.*'}] }, C {}"
    assert load_text(f"accounts {{ {text}\n B {{ imports: [{{stream: {{account: A, subject: a.b}}}}] }} }}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B { imports: [{stream: {account: X, subject: a}}] }", "2:15: the account 'X' is not defined"),
        ("B { imports: [{stream: {account: A, subject: b}}] }", "3:15: 'A' does not export the stream 'b' to 'B'"),
        ("B { imports: [{stream: {account: A}}] }", "3:24: stream: an import needs an 'account' and a 'subject'"),
        ("B { imports: [{stream: a}] }", "3:24: stream: expected {account, subject}, found a string"),
        (
            "B { imports: [{stream: {account: A, subject: ev.x}, to: b, prefix: c}] }",
            "3:15: an import has a 'to' or a 'prefix', not both",
        ),
        ("B { imports: [{to: a}] }", "3:15: an import needs either 'stream' or 'service'"),
        ("B { imports: [{stream: {account: A, subject: 'ev.>'}, too: b}] }", "3:55: unknown key 'too' in an import"),
        ("B { exports: [{stream: a..b}] }", "3:24: stream: subject 'a..b': has an empty token"),
        ("B { exports: [{stream: a, latency: b}] }", "3:15: a stream has no 'latency': only services"),
        ("B { exports: [{service: a, latency: 'b.*'}] }", "3:37: latency: subject 'b.*': has a"),
        (
            "B { exports: [{service: a, latency: {subject: b, sampling: 101}}] }",
            "3:60: sampling: expected a sampling from 1 to 100",
        ),
        ("B { exports: [{service: a, latency: {sampling: 1}}] }", "3:37: latency: Latency subject required"),
        ("B { exports: [{stream: a, response: stream}] }", "3:15: a stream has no 'response_type': only services"),
        ("B { exports: [{service: a, threshold: '0s'}] }", "3:39: threshold: expected a duration that is positive"),
        (
            "B { imports: [{stream: {account: A, subject: 'ev.*'}, to: 'b.$2'}] }",
            "3:15: 'to': 'b.$2' does not use all the wildcards of 'ev.*'",
        ),
        (
            "B { imports: [{stream: {account: A, subject: 'ev.*'}, to: 'b.*.*'}] }",
            "3:15: 'to': 'b.*.*' has more wildcards than 'ev.*'",
        ),
        (
            "B { imports: [{service: {account: A, subject: svc.$1}, to: 'b.*'}] }",
            "3:15: 'to': 'svc.$1' has numbered wildcards, which belong in 'to'; here they are '*'",
        ),
        ("B { imports: [{stream: {account: A, subject: ev.x}, prefix: 'p.*'}] }", "3:61: prefix: subject 'p.*': has a"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    before = "" if message.startswith("2:") else OFFER + "\n"
    assert failure(before + text).startswith(message)


def test_cycles_are_found_over_any_distance() -> None:
    names = [f"A{number}" for number in range(20)]
    exports = "exports: [{service: 'a.*'}, {stream: 'a.*'}]"
    for kind in ("service", "stream"):
        row = [
            f"{name} {{ {exports}\n imports: [{{{kind}: {{account: {other}, subject: 'a.*'}}}}] }}"
            for name, other in pairwise(names)
        ]
        assert load_text("accounts {" + "\n".join([*row, f"{names[-1]} {{ {exports} }}"]) + "}")
        back = f"{names[-1]} {{ {exports}\n imports: [{{{kind}: {{account: A0, subject: a.x}}}}] }}"
        assert "the import forms a cycle" in failure("\n".join([*row, back]))


# Names on both sides

token = st.sampled_from(["a", "b", "*", "x1"])


@st.composite
def mappings(draw: st.DrawFn) -> SubjectMapping:
    tokens = draw(st.lists(token, min_size=1, max_size=4))
    stars = [f"${number + 1}" for number in range(tokens.count("*"))]
    local = draw(st.permutations([*stars, *draw(st.lists(st.sampled_from(["m", "n"]), max_size=2))]))
    rest = [">"] if draw(st.booleans()) else [] if local else ["end"]
    end = rest if rest == [">"] else []
    return SubjectMapping(".".join([*tokens, *end]), ".".join([*local, *rest]))


def literal(draw: st.DrawFn, pattern: str) -> bytes:
    words = st.sampled_from(["a", "b", "q"])
    tokens = [draw(words) if token == "*" else token for token in pattern.split(".")]
    return ".".join(tokens).replace(">", draw(st.sampled_from(["a", "b.q"]))).encode()


@settings(deadline=None)
@given(data=st.data())
def test_there_and_back(data: st.DataObject) -> None:
    mapping = data.draw(mappings())
    subject = literal(data.draw, mapping.subject)
    local = mapping.inward(subject)
    assert matches(mapping.local, local.decode()) and mapping.outward(local) == subject


@settings(deadline=None)
@given(data=st.data())
def test_a_pattern_gets_what_it_matches_and_nothing_else(data: st.DataObject) -> None:
    mapping = data.draw(mappings())
    wanted = ".".join(data.draw(st.lists(st.sampled_from(["a", "b", "m", "n", "*", "end"]), min_size=1, max_size=6)))
    wanted += data.draw(st.sampled_from(["", ".>"]))
    exported = mapping.outward(wanted.encode())
    subject = literal(data.draw, mapping.subject)
    is_wanted = matches(wanted, mapping.inward(subject).decode())
    assert is_wanted == (exported is not None and matches(exported.decode(), subject.decode()))
    assert exported is None or is_subset(exported.decode(), mapping.subject)


def test_repeated_tokens_have_to_agree() -> None:
    mapping = SubjectMapping("a.*", "b.$1.$1")
    assert mapping.outward(b"b.x.x") == b"a.x" and mapping.outward(b"b.x.y") is None
    assert mapping.inward(b"a.x") == b"b.x.x" and not mapping.is_identity
    assert SubjectMapping("a.*.*", "a.*.*").is_identity and not SubjectMapping("a.*.*", "a.$2.$1").is_identity


@pytest.mark.parametrize("local", ["b.$0", "b.$3", "b.{{split(1,-)}}", "b..c", "b.>", ""])
def test_names_that_do_not_fit(local: str) -> None:
    with pytest.raises((BadRequest, BadSubject)):
        SubjectMapping("a.*", local)


@pytest.mark.parametrize(
    ("text", "latency"),
    [
        ("m", Latency("m")),
        ("{subject: m}", Latency("m")),
        ("{subject: m, sampling: 20}", Latency("m", 20)),
        ("{subject: m, sampling: '20%'}", Latency("m", 20)),
        ("{subject: m, sampling: Headers}", Latency("m", 0)),
    ],
)
def test_an_import_knows_of_its_export_what_is_measured_and_traced(text: str, latency: Latency) -> None:
    offer = f"A {{ exports: [{{service: s, latency: {text}, allow_trace: true}}] }}"
    found = load_text(f"accounts {{ {offer}\n B {{ imports: [{{service: {{account: A, subject: s}}}}] }} }}", "f", {})
    (wanted,) = found.accounts["B"].imports
    assert wanted.latency == latency and wanted.allow_trace
