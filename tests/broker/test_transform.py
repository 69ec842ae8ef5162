"""Subject transforms: by themselves, and beside those of the real nats-server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.broker.transform import BadTransform, SubjectTransform, fnv1a_32
from tests.broker.real_server import Client, real_server

# Source, destination, subject, result (None: the source does not match, and the subject stays).
MAPPED = [
    ("orders.*", "x.$1", "orders.abc", "x.abc"),
    ("orders.*", "x.{{wildcard(1)}}", "orders.abc", "x.abc"),
    ("orders.*", "x.{{ Wildcard( 1 ) }}", "orders.abc", "x.abc"),
    ("orders.*.*", "$2.x.{{wildcard(1)}}.$2", "orders.a.b", "b.x.a.b"),
    ("orders.*", "x", "orders.abc", "x"),
    ("orders.a", "x.y", "orders.a", "x.y"),
    ("orders.a", "x.y", "orders.b", None),
    ("orders.*", "x.$1", "orders.a.b", None),
    ("orders.*.b", "x.$1", "orders.a.c", None),
    ("orders.*", "", "orders.abc", None),
    ("", "x.>", "orders.abc", "x.orders.abc"),
    ("", "", "orders.abc", None),
    (">", ">", "orders.a.b", "orders.a.b"),
    (">", "x.$0.>", "orders.a.b", "x.orders.orders.a.b"),
    ("orders.>", "x.y.>", "orders.a.b", "x.y.a.b"),
    ("orders.*.>", "x.$1.y.>", "orders.a.b.c", "x.a.y.b.c"),
    ("orders.*.>", "x.$1.y.>", "orders.a", None),
    ("orders.*.>", ">", "orders.a.b", "b"),
    ("orders.*", "x.$0", "orders.abc", "x.orders"),
    ("orders.*", "x.{{wildcard(-1)}}", "orders.abc", "x.orders"),
    ("orders.*", "x.$+1", "orders.abc", "x.abc"),
    ("orders.*", "$JS.$a.$", "orders.abc", "$JS.$a.$"),
    ("orders.*", "x{{wildcard(1)}}", "orders.abc", "x{{wildcard(1)}}"),
    ("orders.*", "{{wildcard(1)}}y", "orders.abc", "{{wildcard(1)}}y"),
    ("orders.*", "x.{{}}", "orders.abc", "x.{{}}"),
    ("orders.*", "{{a{{wildcard(1)}}", "orders.abc", "abc"),
    ("orders.*", "x.{{partition(10,1)}}", "orders.abc", "x.1"),
    ("orders.*.*", "x.{{partition(10,1,2)}}", "orders.ab.c", "x.1"),
    ("orders.*.*", "x.{{ partition( 4 , 2, 1) }}.$1", "orders.abc.é", "x.3.abc"),
    ("orders.*", "x.{{partition(7)}}", "orders.abc", "x.0"),
    ("orders.>", "x.{{partition(7)}}.>", "orders.a.b", "x.0.a.b"),
    ("orders.a", "x.{{partition(7)}}", "orders.a", "x.1"),
    ("orders.a", "x.{{partition(7,5)}}", "orders.a", "x.1"),
    ("orders.*", "x.{{partition(0,1)}}", "orders.abc", "x.0"),
    ("orders.*", "x.{{partition(-3,1)}}", "orders.abc", "x.440920331"),
    ("orders.*", "x.{{partition(-4294967291,1)}}", "orders.abc", "x.1"),
    ("orders.*", "x.{{random(0)}}", "orders.abc", "x.0"),
    ("orders.*", "x.{{random(1)}}", "orders.abc", "x.0"),
    ("orders.*", "x.{{random(-1)}}", "orders.abc", "x.0"),
    ("orders.a", "x.{{random(1)}}", "orders.a", "x.0"),
    ("orders.*", "x.{{split(1,-)}}", "orders.a-b--c", "x.a.b.c"),
    ("orders.*", "x.{{split(1, -)}}.y", "orders.-a-", "x.a.y"),
    ("orders.*", "x.{{split(1,ab)}}", "orders.1ab2ab3", "x.1.2.3"),
    ("orders.*", "x.{{split(1,)}}", "orders.aéb", "x.a.é.b"),
    ("orders.*", "x.{{split(1,-)}}", "orders.--a", "x..a"),
    ("orders.*", "x.{{split(1,-)}}", "orders.---a-", "x..a"),
    ("orders.*", "x.{{split(1,-)}}.y", "orders.--", "x..y"),
    ("orders.*", "x.{{splitfromleft(1,2)}}", "orders.abcde", "x.ab.cde"),
    ("orders.*", "x.{{SplitFromLeft(1,5)}}", "orders.abcde", "x.abcde"),
    ("orders.*", "x.{{splitfromleft(1,-2)}}", "orders.abcde", "x.abcde"),
    ("orders.*", "x.{{splitfromright(1,2)}}", "orders.abcde", "x.abc.de"),
    ("orders.*", "x.{{splitfromright(1,0)}}", "orders.abcde", "x.abcde"),
    ("orders.*", "x.{{slicefromleft(1,2)}}", "orders.abcde", "x.ab.cd.e"),
    ("orders.*", "x.{{slicefromleft(1,2)}}", "orders.abcd", "x.ab.cd"),
    ("orders.*", "x.{{slicefromleft(1,9)}}", "orders.abcd", "x.abcd"),
    ("orders.*", "x.{{slicefromright(1,2)}}", "orders.abcde", "x.a.bc.de"),
    ("orders.*", "x.{{sliceFromRight(1,3)}}", "orders.abcdef", "x.abc.def"),
    ("orders.*", "x.{{slicefromleft(1,2)}}.$1", "orders.é1é", "x.é.1\udcc3.\udca9.é1é"),
    ("orders.*", "x.{{left(1,2)}}", "orders.abcde", "x.ab"),
    ("orders.*", "x.{{Left(1,9)}}", "orders.abcde", "x.abcde"),
    ("orders.*", "x.{{right(1,2)}}", "orders.abcde", "x.de"),
    ("orders.*", "x.{{right(1,0)}}", "orders.abcde", "x.abcde"),
    ("orders.*", "orders.$1", "orders.abc", "orders.abc"),
]

OUT_OF_RANGE = "invalid mapping destination: wildcard index out of range in"
BAD_ARGUMENT = "invalid mapping destination: function argument is invalid or in the wrong format in"
TOO_FEW = "invalid mapping destination: not enough arguments passed to the function in"
TOO_MANY = "invalid mapping destination: too many arguments passed to the function in"
UNKNOWN = "invalid mapping destination: unknown function in"
INVALID = "invalid mapping destination: invalid transform"

# Source, destination, which of them is wrong, what the server says.
REFUSED = [
    ("orders..x", "x.y", "source", "invalid subject orders..x"),
    ("ord ers.*", "x.$1", "source", "invalid subject ord ers.*"),
    ("orders.*.>.a", "x.$1", "source", "invalid subject orders.*.>.a"),
    ("orders.*", "x..y", "destination", INVALID),
    ("orders.*", "x.y z", "destination", INVALID),
    ("orders.>", "x.>.y", "destination", f"{INVALID} in y"),
    ("orders.>", "x", "destination", "invalid subject"),
    ("", "x", "destination", "invalid subject"),
    ("orders.*", "x.>", "destination", "invalid subject"),
    ("orders.*", "x.*", "destination", "invalid subject"),
    ("orders.*", "x.*.{{wildcard(9)}}", "destination", "invalid subject"),
    ("orders.*", "x.{{wildcard(2)}}", "destination", f"{OUT_OF_RANGE} {{{{wildcard(2)}}}}: [2]"),
    ("orders.*", "x.$2", "destination", f"{OUT_OF_RANGE} $2: [2]"),
    ("orders.*", "x.{{partition(4,1,2)}}", "destination", f"{OUT_OF_RANGE} {{{{partition(4,1,2)}}}}: [2]"),
    ("orders.a", "x.{{wildcard(1)}}", "destination", f"{OUT_OF_RANGE} {{{{wildcard(1)}}}}"),
    ("orders.a", "x.$1", "destination", f"{OUT_OF_RANGE} $1"),
    ("orders.a", "x.{{left(1,2)}}", "destination", f"{OUT_OF_RANGE} {{{{left(1,2)}}}}"),
    ("orders.a", "x.{{left(1,z)}}", "destination", f"{BAD_ARGUMENT} {{{{left(1,z)}}}}"),
    ("orders.*", "x.{{nope(1)}}", "destination", f"{UNKNOWN} {{{{nope(1)}}}}"),
    ("orders.*", "x.{{WILDCARD(1)}}", "destination", f"{UNKNOWN} {{{{WILDCARD(1)}}}}"),
    ("orders.*", "x.{{wildcard(1}}", "destination", f"{UNKNOWN} {{{{wildcard(1}}}}"),
    ("orders.*", "x.{{wildcard()}}", "destination", f"{TOO_FEW} {{{{wildcard()}}}}"),
    ("orders.*", "x.{{wildcard(1,2)}}", "destination", f"{TOO_MANY} {{{{wildcard(1,2)}}}}"),
    ("orders.*", "x.{{wildcard(a)}}", "destination", f"{BAD_ARGUMENT} {{{{wildcard(a)}}}}"),
    ("orders.*", "x.{{wildcard(1_0)}}", "destination", f"{BAD_ARGUMENT} {{{{wildcard(1_0)}}}}"),
    ("orders.*", "x.{{split(1)}}", "destination", f"{TOO_FEW} {{{{split(1)}}}}"),
    ("orders.*", "x.{{split(1,-,2)}}", "destination", f"{TOO_MANY} {{{{split(1,-,2)}}}}"),
    ("orders.*", "x.{{split(a,-)}}", "destination", f"{BAD_ARGUMENT} {{{{split(a,-)}}}}"),
    ("orders.*", "x.{{split(1,- )}}", "destination", f"{BAD_ARGUMENT} {{{{split(1,- )}}}}"),
    ("orders.*", "x.{{left(1)}}", "destination", f"{TOO_FEW} {{{{left(1)}}}}"),
    ("orders.*", "x.{{left(1,2,3)}}", "destination", f"{TOO_MANY} {{{{left(1,2,3)}}}}"),
    ("orders.*", "x.{{left(1,9999999999)}}", "destination", f"{BAD_ARGUMENT} {{{{left(1,9999999999)}}}}"),
    ("orders.*", "x.{{left(9,a)}}", "destination", f"{BAD_ARGUMENT} {{{{left(9,a)}}}}"),
    ("orders.*", "x.{{partition()}}", "destination", f"{BAD_ARGUMENT} {{{{partition()}}}}"),
    ("orders.*", "x.{{partition(9999999999)}}", "destination", f"{BAD_ARGUMENT} {{{{partition(9999999999)}}}}"),
    ("orders.*", "x.{{partition(9,9,a)}}", "destination", f"{BAD_ARGUMENT} {{{{partition(9,9,a)}}}}"),
    ("orders.*", "x.{{random()}}", "destination", f"{BAD_ARGUMENT} {{{{random()}}}}"),
    ("orders.*", "x.{{random(1,2)}}", "destination", f"{TOO_FEW} {{{{random(1,2)}}}}"),
]


@pytest.mark.parametrize(("src", "dest", "subject", "expected"), MAPPED)
def test_transform_maps(src: str, dest: str, subject: str, expected: str | None) -> None:
    assert SubjectTransform(src, dest).apply(subject) == expected


@pytest.mark.parametrize(("src", "dest", "part", "problem"), REFUSED)
def test_transform_is_refused_in_the_words_of_nats_server(src: str, dest: str, part: str, problem: str) -> None:
    with pytest.raises(BadTransform) as refused:
        SubjectTransform(src, dest)
    assert (refused.value.part, refused.value.problem) == (part, problem)


@pytest.mark.parametrize("subject", ["", "orders.", "orders..a", "orders.*", "orders.>"])
def test_a_subject_that_is_not_literal_stays(subject: str) -> None:
    assert SubjectTransform("orders.>", "x.>").apply(subject) is None


def test_random_is_passed_in_and_stays_below_its_bound() -> None:
    assert SubjectTransform("a", "x.{{random(7)}}", random_int31=lambda: 20).apply("a") == "x.6"
    found = {SubjectTransform("a", "{{random(3)}}").apply("a") for _ in range(200)}
    assert found == {"0", "1", "2"}


def test_fnv1a_has_its_published_values() -> None:
    assert [fnv1a_32(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


@given(st.text(), st.text(), st.text())
def test_any_text_maps_or_is_refused(src: str, dest: str, subject: str) -> None:
    try:
        SubjectTransform(src, dest).apply(subject)
    except ValueError as error:
        assert str(error)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with real_server("jetstream: {}") as port, Client(port) as client:
        yield client


def create(client: Client, src: str, dest: str) -> dict[str, object]:
    config = {"name": "S", "subjects": ["orders.>"], "storage": "memory"}
    config["subject_transform"] = {"src": src, "dest": dest}  # type: ignore[assignment]
    return client.request("$JS.API.STREAM.CREATE.S", config)


@pytest.mark.parametrize(("src", "dest", "subject", "expected"), MAPPED)
def test_nats_server_stores_the_same_subject(
    client: Client, src: str, dest: str, subject: str, expected: str | None
) -> None:
    assert "error" not in create(client, src, dest)
    try:
        assert "error" not in client.request(subject, {})
        stored = client.request("$JS.API.STREAM.MSG.GET.S", {"seq": 1})["message"]["subject"]
        expected = subject if expected is None else expected
        # JSON cannot carry a cut character: the server writes the replacement character for each byte.
        assert stored == expected.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    finally:
        client.request("$JS.API.STREAM.DELETE.S", {})


@pytest.mark.parametrize(("src", "dest", "part", "problem"), REFUSED)
def test_nats_server_refuses_with_the_same_words(client: Client, src: str, dest: str, part: str, problem: str) -> None:
    where, code = {"source": ("transform source", 10155), "destination": ("transform", 10156)}[part]
    expected = {"code": 400, "err_code": code, "description": f"stream {where}: {problem}"}
    assert create(client, src, dest)["error"] == expected
