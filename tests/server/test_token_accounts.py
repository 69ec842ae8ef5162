"""Accounts by tokens: what expires while an account is looked at."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jetlake.broker.operator import KnownAccount
from jetlake.clock import SECOND_NS
from tests.compat.tokens import Operator, sign
from tests.server.harness import running


async def test_an_import_that_expires_during_the_look_at_its_account_is_looked_at_again() -> None:
    operator = Operator()
    owner, guest = operator.account("OWNER"), operator.account("GUEST")
    ends_s = int(time.time()) + 3600
    activation = sign(owner.key, guest.id, "activation", "a", {"exp": ends_s}, {"subject": "q", "kind": "service"})
    wanted = {"account": owner.id, "subject": "q", "type": "service", "token": activation}
    tokens = [
        owner.token(exports=[{"subject": "q", "type": "service", "token_req": True}]),
        guest.token(imports=[wanted]),
    ]
    async with running(operator.config(*tokens)) as server:
        accounts, broker = server.tokens, server.broker
        assert accounts is not None
        assert broker.operator is not None
        now_ns = (ends_s - 1) * SECOND_NS
        broker.operator._clock = server.clock = lambda: now_ns  # type: ignore[method-assign]
        use_account = broker.use_account

        def look_slowly(known: KnownAccount) -> Any:
            nonlocal now_ns
            found = use_account(known)
            if known.name == guest.id:
                now_ns = ends_s * SECOND_NS  # the activation ends just after the look
            return found

        broker.use_account = look_slowly  # type: ignore[method-assign]
        assert await accounts.load(guest.id)
        for _ in range(1000):
            if not broker.accounts[guest.id].imports_service(b"q"):
                break
            await asyncio.sleep(0.005)
        assert not broker.accounts[guest.id].imports_service(b"q")
