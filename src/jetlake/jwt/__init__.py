"""JSON web tokens as NATS has them: operators sign accounts, accounts sign users.

- `envelope` text to claims whose signature is good, and back
- `claims` what operators, accounts, users and activations say, typed
- `validate` what is wrong with the claims of an account
- `template` the permissions of users whose signing key has a scope

Nothing here knows which keys are to be trusted: `jetlake.broker.operator` does.
"""

from jetlake.jwt.claims import (
    AccountBody,
    AccountLimits,
    ActivationBody,
    Export,
    Import,
    JetStreamLimits,
    OperatorBody,
    Scope,
    ServiceLatency,
    UserBody,
    UserLimits,
    read_account,
    read_activation,
    read_operator,
    read_user,
)
from jetlake.jwt.envelope import BadJwt, Claims, decode, encode
from jetlake.jwt.validate import account_problems

__all__ = [
    "AccountBody",
    "AccountLimits",
    "ActivationBody",
    "BadJwt",
    "Claims",
    "Export",
    "Import",
    "JetStreamLimits",
    "OperatorBody",
    "Scope",
    "ServiceLatency",
    "UserBody",
    "UserLimits",
    "account_problems",
    "decode",
    "encode",
    "read_account",
    "read_activation",
    "read_operator",
    "read_user",
]
