"""Whom does each publish of a batch reach? Without an object for each message.

A number stands for everybody whom a message reaches; the account knows who is behind it (`Recipients`). `run` finds how
many publishes in a row have the same recipients, so that Python works once for all of them. Fixed numbers:

    UNKNOWN  the subject has to be looked up, and given a number with `put`
    NOBODY   no subscription and no stream

Subjects are remembered until `clear`, which the account calls when subscriptions or streams changed; a table that is
full starts anew. `clear(captures, others)` also tells how to find new ones without Python: `captures` are the subjects
of streams and their numbers, `others` the patterns of everything else that wants messages. A subject that only one
stream matches has that number, one that nothing matches NOBODY, all others are UNKNOWN. With None for `others` (too
many to look through) all new subjects are UNKNOWN. A subject with an empty token or a wildcard always is.

Where each subject is published to once or seldom, as those of acks are, remembering them is in vain: `add_prefix` names
tokens that they begin with, and all of them share one number, which `put_prefix` tells. It is UNKNOWN until then, and
again after each `clear`.

Where one publish follows another to a different stream, runs are short. `groups(data, ops, first, stop, apart)` takes
the publishes from `first` on for as long as they have recipients between which no order is promised: those whose byte
in `apart` is not 0. It returns (the first operation that it did not take, the operations sorted by their recipients, a
list of runs of these: recipients, first, stop). Publishes with the same recipients keep their order.

`deal(ops, first, stop, count, seed)` gives each member of a queue group the operations that are for it: one array of
operations for each of `count` members, chosen at random from the seed, each in the order of the publishes.
"""

from __future__ import annotations

from jetlake.broker._recipient_table_py import FIRST_RECIPIENTS, NOBODY, UNKNOWN

try:
    from jetlake.broker._recipient_table_c import RecipientTable, deal

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.broker._recipient_table_py import RecipientTable, deal

    COMPILED = False

__all__ = ["COMPILED", "FIRST_RECIPIENTS", "NOBODY", "UNKNOWN", "RecipientTable", "deal"]
