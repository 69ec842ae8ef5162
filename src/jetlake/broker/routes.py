"""Which route does each publish of a batch take? Without an object for each message.

A route is a number that stands for everybody whom a message reaches; the account knows what is behind it. `run` finds
how many publishes in a row share one, so that Python works once for all of them. Fixed numbers:

    UNKNOWN  the subject has to be looked up, and given a number with `put`
    NOBODY   no subscription and no stream

Subjects are remembered until `clear`, which the account calls when subscriptions or streams changed; a table that is
full starts anew. `clear(captures, others)` also tells how to find new ones without Python: `captures` are the subjects
of streams and their routes, `others` the patterns of everything else that wants messages. A subject that only one
stream matches has that route, one that nothing matches NOBODY, all others are UNKNOWN. With None for `others` (too
many to look through) all new subjects are UNKNOWN. A subject with an empty token or a wildcard always is.

Where each subject is published to once or seldom, as those of acks are, remembering them is in vain: `add_prefix` names
tokens that they begin with, and all of them share one route, which `put_prefix` tells. It is UNKNOWN until then, and
again after each `clear`.

`deal(ops, first, stop, count, seed)` gives each member of a queue group the operations that are for it: one array of
operations for each of `count` members, chosen at random from the seed, each in the order of the publishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.broker._routes_py import FIRST_ROUTE, NOBODY, UNKNOWN
from jetlake.store.subject_table import KERNEL as COMPILED

if TYPE_CHECKING or not COMPILED:
    from jetlake.broker._routes_py import RouteTable, deal
else:
    from jetlake.broker._routes_c import RouteTable, deal

__all__ = ["COMPILED", "FIRST_ROUTE", "NOBODY", "UNKNOWN", "RouteTable", "deal"]
