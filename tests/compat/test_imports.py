"""What accounts export and import: streams of subjects, services, and JetStream through them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import DEFAULTS, Msg, Peer, parse_msg
from tests.compat.servers import Server, wait_until


def accounts(**shared: str) -> str:
    """Accounts with a user each, of the same name in small letters, and what they share."""
    entries = (
        f"{name} {{ users: [{{user: {name.lower()}, password: p}}], jetstream: enabled\n {text} }}"
        for name, text in shared.items()
    )
    return "accounts {\n" + "\n".join(entries) + "\n}"


def login(server: Server, user: str) -> Peer:
    return Peer(server, {**DEFAULTS, "user": user, "pass": "p"})


def heard(peer: Peer) -> list[tuple[str, str]]:
    """The subjects and subscriptions of what a client got."""
    return sorted((msg.subject, msg.sid) for msg in map(parse_msg, peer.ask()))


def get(peer: Peer) -> list[Msg]:
    return [parse_msg(frame) for frame in peer.ask()]


STREAMS = accounts(
    A='exports: [{stream: "ev.>"}, {stream: "one.*.*"}, {stream: private, accounts: [B]}]',
    B="""imports: [
      {stream: {account: A, subject: "ev.>"}, prefix: from.a},
      {stream: {account: A, subject: "one.*.*"}, to: "two.$2.x.$1"},
      {stream: {account: A, subject: private}, to: mine},
    ]""",
    C='imports: [{stream: {account: A, subject: "ev.*.x"}}]',
)


def test_a_stream_of_subjects_goes_to_its_importers(start: Start) -> None:
    server = start(STREAMS)
    with login(server, "a") as a, login(server, "b") as b, login(server, "c") as c:
        for sid, subject in enumerate(
            ("from.a.ev.k.x", "from.>", "*.a.ev.*.*", ">", "ev.>", "from.b.>", "from.a.ev.k")
        ):
            b.subscribe(subject, str(sid))
        c.subscribe("ev.>")
        a.ask(b"PUB ev.k.x r.r 2\r\nhi\r\nPUB ev.k.y 0\r\n\r\nPUB other 0\r\n\r\n")
        assert heard(c) == [("ev.k.x", "1")], "only what it imports"
        both = [("from.a.ev.k.x", sid) for sid in "0123"] + [("from.a.ev.k.y", sid) for sid in "123"]
        assert heard(b) == both
        a.ask(b"PUB ev.k.x r.r 2\r\nhi\r\n")
        assert {(msg.reply, msg.payload) for msg in get(b)} == {("r.r", b"hi")}
        b.ask(b"PUB from.a.ev.k.x 0\r\n\r\n"), c.ask(b"PUB ev.k.x 0\r\n\r\n")
        assert a.ask() == [], "nothing goes the other way"


def test_tokens_change_places(start: Start) -> None:
    server = start(STREAMS)
    with login(server, "a") as a, login(server, "b") as b:
        for sid, subject in enumerate(("two.q.x.p", "two.*.x.p", "two.q.>", "two.p.x.q", "two.*.y.*")):
            b.subscribe(subject, str(sid))
        b.subscribe("mine", "m")
        a.ask(b"PUB one.p.q 0\r\n\r\nPUB private 0\r\n\r\n")
        assert heard(b) == [("mine", "m"), *(("two.q.x.p", sid) for sid in "012")]


def test_queue_groups_reach_across_accounts(start: Start) -> None:
    server = start(STREAMS)
    with login(server, "a") as a, login(server, "b") as b, login(server, "a") as publisher:
        a.subscribe("ev.q", "1", "group"), b.subscribe("from.a.ev.q", "1", "group")
        publisher.ask(b"PUB ev.q 0\r\n\r\n" * 100)
        counts = len(a.ask()), len(b.ask())
        assert sum(counts) == 100 and min(counts) > 10, "one member of the group gets each"
        a.ask(b"UNSUB 1\r\n")
        publisher.ask(b"PUB ev.q 0\r\n\r\n" * 10)
        assert len(b.ask()) == 10


def test_permissions_of_the_importer_hold(start: Start) -> None:
    rules = "permissions: {subscribe: {allow: ['here.>'], deny: [here.no]}}"
    server = start(f"""accounts {{
      A {{ users: [{{user: a, password: p}}], exports: [{{stream: "ev.>"}}] }}
      B {{ users: [{{user: b, password: p, {rules}}}]
           imports: [{{stream: {{account: A, subject: "ev.>"}}, to: "here.>"}}] }}
    }}""")
    with login(server, "a") as a, login(server, "b") as b:
        b.subscribe("here.>")
        a.ask(b"PUB ev.no 0\r\n\r\nPUB ev.yes 0\r\n\r\n")
        assert heard(b) == [("here.yes", "1")]


def test_what_is_imported_is_not_exported_again(start: Start) -> None:
    server = start(
        accounts(
            A='exports: [{stream: "a.>"}]',
            B='exports: [{stream: "b.>"}], imports: [{stream: {account: A, subject: "a.>"}, to: "b.>"}]',
            C='imports: [{stream: {account: B, subject: "b.>"}}]',
        )
    )
    with login(server, "a") as a, login(server, "b") as b, login(server, "c") as c:
        b.subscribe("b.*"), c.subscribe("b.*")
        a.ask(b"PUB a.x 0\r\n\r\n"), b.ask(b"PUB b.y 0\r\n\r\n")
        assert heard(c) == [("b.y", "1")]


SERVICES = accounts(
    A="""exports: [
      {service: "svc.*"}, {service: many, response_type: stream}, {service: parts, response_type: chunked},
      {service: known}, {service: slow, response_threshold: "300ms"},
    ]""",
    B="""imports: [
      {service: {account: A, subject: "svc.*"}, to: "my.*"}, {service: {account: A, subject: many}},
      {service: {account: A, subject: parts}}, {service: {account: A, subject: known}, share: true},
      {service: {account: A, subject: slow}},
    ]""",
)


def ask(asker: Peer, service: Peer, subject: str, reply: str = "in.1") -> Msg:
    """A request as the service gets it."""
    asker.ask(f"PUB {subject} {reply} 2\r\nhi\r\n".encode())
    return service.message()


def answer(service: Peer, request: Msg, *bodies: bytes) -> None:
    assert (
        service.ask(b"".join(f"PUB {request.reply} {len(body)}\r\n".encode() + body + b"\r\n" for body in bodies)) == []
    )


def test_a_service_answers_another_account(start: Start) -> None:
    server = start(SERVICES)
    with login(server, "a") as a, login(server, "b") as b:
        a.subscribe("svc.*"), b.subscribe("in.*")
        request = ask(b, a, "my.x")
        assert request.subject == "svc.x" and request.payload == b"hi"
        assert request.reply.startswith("_R_.") and b'Nats-Request-Info: {"acc":"B"' in request.headers
        answer(a, request, b"one", b"two")
        assert [(msg.subject, msg.payload) for msg in get(b)] == [("in.1", b"one")], "a singleton has one answer"
        b.ask(b"PUB my.y 2\r\nhi\r\n")
        assert a.message().reply == "", "nobody waits for an answer"
        b.ask(b"HPUB my.z in.2 24 26\r\nNATS/1.0\r\nA: b\r\nC: d\r\n\r\nhi\r\n")
        assert a.message().headers.startswith(b"NATS/1.0\r\nA: b\r\nC: d\r\nNats-Request-Info: {")


def test_an_answer_may_ask_in_turn(start: Start) -> None:
    server = start(SERVICES)
    with login(server, "a") as a, login(server, "b") as b:
        a.subscribe("svc.*"), a.subscribe("back", "2"), b.subscribe("in.*")
        request = ask(b, a, "my.x")
        a.ask(f"PUB {request.reply} back 3\r\none\r\n".encode())
        first = b.message()
        assert first.subject == "in.1" and first.reply.startswith("_R_.")
        b.ask(f"PUB {first.reply} 3\r\ntwo\r\n".encode())
        second = a.message()
        assert (second.subject, second.payload) == ("back", b"two")


def test_a_service_may_answer_several_times(start: Start) -> None:
    server = start(SERVICES)
    with login(server, "a") as a, login(server, "b") as b:
        a.subscribe("*"), b.subscribe("in.*")
        for subject in ("many", "parts"):
            request = ask(b, a, subject)
            a.ask(f"HPUB {request.reply} 12 12\r\nNATS/1.0\r\n\r\n\r\n".encode())
            answer(a, request, b"1", b"2", b"", b"4")
            payloads = [msg.payload for msg in get(b)]
            assert payloads == [b"", b"1", b"2", b""], "an empty one, without headers, is the last"


def test_an_answer_that_comes_too_late_is_dropped(start: Start) -> None:
    server = start(SERVICES)
    with login(server, "a") as a, login(server, "b") as b:
        a.subscribe("slow"), b.subscribe("in.*")
        late, in_time = ask(b, a, "slow", "in.1"), None
        time.sleep(0.8)
        in_time = ask(b, a, "slow", "in.2")
        answer(a, late, b"late"), answer(a, in_time, b"in time")
        assert [(msg.subject, msg.payload) for msg in get(b)] == [("in.2", b"in time")]


def test_a_service_that_nobody_offers(start: Start) -> None:
    server = start(SERVICES)
    with login(server, "a") as a, login(server, "b") as b:
        assert b.request("my.x").headers == b"NATS/1.0 503\r\nNats-Subject: my.x\r\n\r\n"
        assert b.ask(b"PUB my.x 0\r\n\r\n") == []
        a.subscribe("svc.y")
        b.subscribe("in.*")
        unheard = b.ask(b"PUB my.y in.y 0\r\n\r\nPUB my.x in.x 0\r\n\r\n")
        assert a.message().subject == "svc.y" and [parse_msg(frame).subject for frame in unheard] == ["in.x"]


def test_a_service_is_told_who_asks(start: Start) -> None:
    server = start(SERVICES)
    with login(server, "a") as a, login(server, "b") as b:
        a.subscribe("known")
        info = ask(b, a, "known").headers
        for field in (b'"acc":"B"', b'"user":"b"', b'"host":"127.0.0.1"', b'"kind":"Client"', b'"server":"N'):
            assert field in info


def test_services_in_a_row(start: Start) -> None:
    server = start(
        accounts(
            A="exports: [{service: a}]",
            B="exports: [{service: b}], imports: [{service: {account: A, subject: a}, to: b}]",
            C="imports: [{service: {account: B, subject: b}, to: c}]",
        )
    )
    with login(server, "a") as a, login(server, "b") as b, login(server, "c") as c:
        a.subscribe("a"), b.subscribe("b"), c.subscribe("in.*")
        request = ask(c, a, "c")
        assert b'"acc":"C"' in request.headers and b'"svc":"B"' in request.headers
        assert request.headers.count(b"Nats-Request-Info") == 1 and b'"svc"' not in b.message().headers
        answer(a, request, b"far")
        assert [(msg.subject, msg.payload) for msg in get(c)] == [("in.1", b"far")]


def test_two_services_and_a_neighbour_hear_the_same_request(start: Start) -> None:
    both = "{service: {account: A, subject: s}}, {service: {account: C, subject: s}}"
    server = start(accounts(A="exports: [{service: s}]", B=f"imports: [{both}]", C="exports: [{service: s}]"))
    with login(server, "a") as a, login(server, "b") as b, login(server, "c") as c, login(server, "b") as neighbour:
        for peer in (a, c, neighbour):
            peer.subscribe("s")
        b.subscribe("in.*")
        requests = [ask(b, a, "s"), c.message()]
        assert neighbour.message().reply == "in.1"
        for peer, request in zip((a, c), requests, strict=True):
            answer(peer, request, b"yes")
        assert [msg.payload for msg in get(b)] == [b"yes", b"yes"]


def test_a_request_is_no_event(start: Start) -> None:
    server = start(
        accounts(
            A='exports: [{stream: "ev.*"}, {service: "ev.*"}]',
            B='imports: [{service: {account: A, subject: "ev.*"}, to: "ask.*"}]',
            C='imports: [{stream: {account: A, subject: "ev.*"}}]',
        )
    )
    with login(server, "a") as a, login(server, "b") as b, login(server, "c") as c:
        a.subscribe("ev.*"), c.subscribe("ev.*")
        b.ask(b"PUB ask.x 0\r\n\r\n"), a.ask(b"PUB ev.y 0\r\n\r\n")
        assert heard(c) == [("ev.y", "1")]


def test_imports_change_with_the_configuration(start: Start) -> None:
    offer = 'exports: [{service: "svc.*"}, {stream: "ev.>"}]'
    service, stream = '{service: {account: A, subject: "svc.*"}, to: "%s.*"}', '{stream: {account: A, subject: "ev.>"}}'
    server = start(accounts(A=offer, B=f"imports: [{service % 'my'}, {stream}]"))
    with login(server, "a") as a, login(server, "b") as b:
        a.subscribe("svc.*"), b.subscribe("in.*"), b.subscribe("ev.x", "2")
        request = ask(b, a, "my.x")
        server.reload("debug: true\n" + accounts(A=offer, B=f"imports: [{service % 'my'}, {stream}]"))
        answer(a, request, b"kept")
        assert [msg.payload for msg in get(b)] == [b"kept"]
        server.reload(accounts(A=offer, B=f"imports: [{service % 'your'}]"))
        assert ask(b, a, "your.x").subject == "svc.x" and b.request("my.x").status == "503"
        a.ask(b"PUB ev.x 0\r\n\r\n")
        assert b.ask() == []
        server.reload(accounts(A=offer, B=f"imports: [{stream}]"))
        a.ask(b"PUB ev.x 0\r\n\r\n")
        assert heard(b) == [("ev.x", "2")]
        server.refuse_reload(accounts(A="", B=f"imports: [{stream}]"))


# JetStream

JETSTREAM = accounts(
    A="""exports: [
      {service: "$JS.API.>", response_type: stream}, {service: "$JS.ACK.>"}, {service: "orders.>"},
      {stream: "deliver.>"}, {stream: "ev.>"},
    ]""",
    B="""imports: [
      {service: {account: A, subject: "$JS.API.>"}, to: "JS.A.API.>"}, {service: {account: A, subject: "$JS.ACK.>"}},
      {service: {account: A, subject: "orders.>"}}, {stream: {account: A, subject: "deliver.>"}},
      {stream: {account: A, subject: "ev.>"}, prefix: a},
    ]""",
)


def far_api(peer: Peer, subject: str, body: bytes = b"") -> Any:
    return peer.request(f"JS.A.API.{subject}", body).json


def test_jetstream_of_another_account(start: Start) -> None:
    server = start(JETSTREAM, "-js")
    with login(server, "a") as a, login(server, "b") as b:
        assert "error" not in a.api("STREAM.CREATE.S", {"name": "S", "subjects": ["orders.>"]})
        for seq in (1, 2):
            assert b.request("orders.x", b"body").json == {"stream": "S", "seq": seq}
        stored = a.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
        assert stored["subject"] == "orders.x" and "hdrs" not in stored, "who published it is not stored"
        assert far_api(b, "STREAM.INFO.S")["state"]["messages"] == 2 and b.api("STREAM.NAMES")["streams"] is None
        config = b'{"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}'
        assert far_api(b, "CONSUMER.CREATE.S.C", config)["name"] == "C"
        request = b'{"batch": 3, "expires": 300000000}'
        messages = b.requests("JS.A.API.CONSUMER.MSG.NEXT.S.C", request, b"", 3)
        assert [msg.subject for msg in messages] == ["orders.x", "orders.x", "INBOX"]
        assert messages[2].status == "408 Request Timeout"
        for msg in messages[:2]:
            assert msg.reply.startswith("$JS.ACK.S.C.") and b.request(msg.reply, b"+ACK").payload == b""
        info = far_api(b, "CONSUMER.INFO.S.C")
        assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"], info["num_waiting"]) == (0, 2, 0)
        assert b.request("JS.A.API.CONSUMER.MSG.NEXT.S.C", b'{"no_wait": true}').status == "404 No Messages"
        assert b.request("JS.A.API.CONSUMER.MSG.NEXT.S.NONE").status == "503"


def test_a_push_consumer_delivers_to_another_account(start: Start) -> None:
    server = start(JETSTREAM, "-js")
    with login(server, "a") as a, login(server, "b") as b:
        assert "error" not in a.api("STREAM.CREATE.S", {"name": "S", "subjects": ["orders.>"]})
        config = {"durable_name": "P", "ack_policy": "explicit", "deliver_subject": "deliver.p"}
        a.request("orders.1")
        created = a.api("CONSUMER.CREATE.S.P", {"stream_name": "S", "config": config})
        assert "error" not in created and not created.get("push_bound")
        b.send(b"SUB deliver.p 1\r\n")
        msg = b.message()
        assert msg.subject == "orders.1" and a.api("CONSUMER.INFO.S.P")["push_bound"]
        assert b.request(msg.reply, b"+ACK").payload == b""
        assert a.api("CONSUMER.INFO.S.P")["ack_floor"]["stream_seq"] == 1
        b.ask(b"UNSUB 1\r\n")
        wait_until(lambda: not a.api("CONSUMER.INFO.S.P").get("push_bound"), "the interest to end")


def test_a_stream_stores_what_its_account_imports(start: Start) -> None:
    server = start(JETSTREAM, "-js")
    with login(server, "a") as a, login(server, "b") as b:
        assert "error" not in b.api("STREAM.CREATE.S", {"name": "S", "subjects": ["a.ev.*"]})
        a.ask(b"PUB ev.x 3\r\nyes\r\nPUB ev.x.y 2\r\nno\r\n")
        wait_until(lambda: b.api("STREAM.INFO.S")["state"]["messages"] == 1, "the first message")
        assert b.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["subject"] == "a.ev.x"
        assert b.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["a.ev.x.*"]})["config"]["name"] == "S"
        a.ask(b"PUB ev.x 3\r\nyes\r\nPUB ev.x.y 2\r\nno\r\n")
        wait_until(lambda: b.api("STREAM.INFO.S")["state"]["messages"] == 2, "the second message")
        assert b.api("STREAM.MSG.GET.S", {"seq": 2})["message"]["subject"] == "a.ev.x.y"
        assert b.api("STREAM.DELETE.S")["success"]
        a.ask(b"PUB ev.x.y 2\r\nno\r\n")


@pytest.mark.parametrize("own", ["", "jetstream: enabled"])
def test_the_api_under_its_own_name(start: Start, own: str) -> None:
    """Without JetStream of its own, an account has that of the other and no refusal beside it."""
    server = start(
        f"""accounts {{
      A {{ users: [{{user: a, password: p}}], jetstream: enabled, exports: [{{service: "$JS.API.>"}}] }}
      B {{ users: [{{user: b, password: p}}], {own}
           imports: [{{service: {{account: A, subject: "$JS.API.>"}}}}] }}
    }}""",
        "-js",
    )
    with login(server, "a") as a, login(server, "b") as b:
        assert "error" not in a.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        answers = [msg.json["streams"] for msg in b.requests("$JS.API.STREAM.NAMES", b"", b"", 2 if own else 1)]
        assert sorted(answers, key=str) == ([None, ["S"]] if own else [["S"]]) and b.ask() == []


def test_accountz_shows_what_is_shared(start: Start) -> None:
    server = start(SERVICES)
    shown = server.get("/accountz?acc=A")["account_detail"]["exports"]
    assert {entry["subject"]: entry.get("response_type") for entry in shown} == {
        "svc.*": "Singleton",
        "many": "Streamed",
        "parts": "Chunked",
        "known": "Singleton",
        "slow": "Singleton",
    }
    shown = [entry for entry in server.get("/accountz?acc=B")["account_detail"]["imports"] if entry["account"] == "A"]
    assert {(entry["subject"], entry["to"], entry["type"], entry["share"]) for entry in shown} == {
        ("svc.*", "my.*", "service", False),
        ("many", "many", "service", False),
        ("parts", "parts", "service", False),
        ("known", "known", "service", True),
        ("slow", "slow", "service", False),
    }
