"""Give the publishes of a batch other subjects, without an object each.

`map_subjects(data, ops, first, stop, found, heads, base, seed)` looks up the subject of each operation (see
`jetlake.ops`) in `found`, which says what becomes of it:

    None                    it stays as it is
    bytes                   this one
    ((weight, choice), …)   one of these: the first whose weight is above a random number below WEIGHTS; weights rise,
                            and a choice is one of the two above. None of them: the message is dropped, which an empty
                            subject stands for

It returns (the operation at which it stopped, how many were dropped, the new subjects one after the other), and has
the operations point to where those will be: `base` and beyond. It stops before a subject that is not in `found`.
`heads` are the first tokens that a subject has to have to be looked at; None: any.
"""

from __future__ import annotations

from jetlake.broker._map_subjects_py import WEIGHTS, Choices, Found

try:
    from jetlake.broker._map_subjects_c import map_subjects

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.broker._map_subjects_py import map_subjects

    COMPILED = False

__all__ = ["COMPILED", "WEIGHTS", "Choices", "Found", "map_subjects"]
