"""Templates of scopes."""

from __future__ import annotations

import pytest

from jetlake.jwt import BadJwt
from jetlake.jwt.claims import SubjectLists, UserLimits
from jetlake.jwt.template import ENTRIES_MAX, Names, fill

USER = Names("ann", "UX", ["team:red", "Team:blue", "zone:"])
ACCOUNT = Names("acme", "AX", ["zone:eu"])


def allow(*templates: str, user: Names = USER) -> SubjectLists:
    return fill(UserLimits(pub=SubjectLists(allow=list(templates))), user, ACCOUNT).pub


def test_functions() -> None:
    assert allow("a.{{name()}}", "{{ subject() }}.>", "{{account-name()}}.{{account-subject()}}").allow == [
        "a.ann",
        "UX.>",
        "acme.AX",
    ]


def test_every_value_of_a_tag_gives_an_entry() -> None:
    assert allow("{{tag(team)}}.{{account-tag(zone)}}.{{tag(team)}}").allow == [
        "red.eu.red",
        "red.eu.blue",
        "blue.eu.red",
        "blue.eu.blue",
    ]


def test_an_entry_that_is_no_subject_is_left_out() -> None:
    assert allow("x.{{tag(none)}}", "y", "z.{{name()}} q").allow == ["y"]
    assert allow("x.{{tag(none)}}") == SubjectLists(deny=[">"])


def test_without_templates_entries_stay_as_they_are() -> None:
    assert allow("x q").allow == ["x q"]


def test_a_deny_that_is_no_subject_makes_the_user_unusable() -> None:
    with pytest.raises(BadJwt):
        fill(UserLimits(sub=SubjectLists(deny=["x.{{tag(none)}}"])), USER, ACCOUNT)


def test_an_unknown_function_makes_the_user_unusable() -> None:
    with pytest.raises(BadJwt, match="'shell' is not known"):
        allow("x.{{shell()}}")


def test_tags_do_not_multiply_without_end() -> None:
    many = Names("ann", "UX", [f"t:{number}" for number in range(100)])
    with pytest.raises(BadJwt, match=f"more than {ENTRIES_MAX} entries"):
        allow("{{tag(t)}}.{{tag(t)}}.{{tag(t)}}", user=many)
