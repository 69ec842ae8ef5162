"""Operator mode as people set it up: what `nsc` writes, credentials files, and a restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import nats
import pytest

from tests.compat.conftest import Start
from tests.compat.servers import Server
from tests.compat.tokens import STREAMS, Operator, User

# As `nsc generate config --nats-resolver` writes it.
NSC = """# Operator named OP
operator: {operator}
# System Account named SYS
system_account: {system}

# configuration of the nats based resolver
resolver {{
    type: full
    # Directory in which the account jwt will be stored
    dir: './jwt'
    # In order to support jwt deletion, set to true
    # If the resolver type is full delete will rename the jwt.
    # This is to allow manual restoration in case of inadvertent deletion.
    # To restore a jwt, remove the added suffix .delete and restart or send a reload signal.
    # To free up storage you must manually delete files with the suffix .delete.
    allow_delete: false
    # Interval at which a nats-server with a nats based resolver will compare
    # it's state with one random nats based resolver in the cluster and if needed,
    # exchange jwt and converge on the same set of jwt.
    interval: "2m"
    # Timeout for lookup requests in case an account does not exist locally.
    timeout: "1.9s"
}}


# Preload the nats based resolver with the system account jwt.
# This is not necessary but avoids a bootstrapping system account.
# This only applies to the system account. Therefore other account jwt are not included here.
# To populate the resolver:
# 1) make sure that your operator has the account server URL pointing at your nats servers.
resolver_preload: {{
\t{system}: {token},
}}
"""


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_what_nsc_writes_starts_unchanged(start: Start, operator: Operator) -> None:
    system = operator.system
    server = start(NSC.format(operator=operator.token(), system=system.id, token=system.token()))
    account = operator.account("A")
    with operator.admin.connect(server) as admin:
        answer = admin.request("$SYS.REQ.CLAIMS.UPDATE", account.token().encode()).json
        assert answer["data"]["message"] == "jwt updated"
    assert account.user().login(server) == []
    assert f"{account.id}.jwt" in [path.name for path in (server.directory / "jwt").iterdir()]


def test_the_operators_token_may_be_in_a_file(start: Start, operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "op.jwt").write_text(operator.token())
    config = operator.config().replace(operator.token(), "")
    lines = [line for line in config.splitlines() if not line.startswith("operator:")]
    server = start("\n".join([f'operator: "{tmp_path}/op.jwt"', *lines]))
    assert operator.admin.login(server) == []


def test_a_client_of_nats_py(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token(limits=STREAMS)), "-js")
    user = account.user("ann")

    async def talk() -> int:
        client = await nats.connect(
            server.url,
            user_jwt_cb=lambda: bytearray(user.token.encode()),
            signature_cb=lambda nonce: user.sign(nonce.encode()).encode(),
        )
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        ack = await stream.publish("s", b"1")
        await client.close()
        return int(ack.seq)

    assert asyncio.run(talk()) == 1


def test_accounts_and_streams_survive_a_restart(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(resolver='{ type: full, dir: "./jwt" }'), "-js")
    with operator.admin.connect(server) as admin:
        admin.request("$SYS.REQ.CLAIMS.UPDATE", account.token(limits=STREAMS).encode())
    user = account.user()
    with user.connect(server) as peer:
        peer.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
        assert peer.request("s", b"1").json["seq"] == 1
    server.stop()
    server.start()
    assert _messages(server, user) == 1


def _messages(server: Server, user: User) -> int:
    with user.connect(server) as peer:
        return int(peer.request("$JS.API.STREAM.INFO.S").json["state"]["messages"])


def test_a_start_that_cannot_work_is_refused(start: Start, operator: Operator) -> None:
    missing = "\n".join(line for line in operator.config().splitlines() if not line.startswith(operator.system.id))
    for config in (
        missing,
        operator.config(more="authorization { users: [{user: a, password: b}] }"),
        operator.config(more="accounts { A { users: [{user: a, password: b}] } }"),
        operator.config(resolver="NOWHERE"),
        operator.config(assert_server_version="9.9.9"),
    ):
        with pytest.raises(AssertionError, match="did not start"):
            start(config)


def test_a_reload_takes_other_tokens(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    token, user = account.token(), account.user()
    config = operator.config(token)
    server = start(config)
    with user.connect(server) as peer:
        assert peer.ask() == []
        server.reload(config.replace(token, account.token(revocations={"*": int(time.time()) + 1})))
        assert b"-ERR 'User Authentication Revoked'\r\n" in peer.rest()
    assert user.login(server) != []
