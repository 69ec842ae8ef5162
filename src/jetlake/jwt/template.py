"""The permissions of a user whose signing key has a scope: the scope's template, filled in for the user.

Inside `{{...}}` a template may say name(), subject(), account-name(), account-subject(), tag(key) and account-tag(key).
A tag is written `key:value`, and a user with several values of a key gets an entry for each. An entry of an allow list
that does not become a subject is left out; one of a deny list makes the user unusable, since it would deny too little.
An allow list of which nothing is left allows nothing.
"""

from __future__ import annotations

import itertools
import re

from msgspec.structs import replace

from jetlake.errors import BadSubject
from jetlake.jwt.claims import SubjectLists, UserLimits
from jetlake.jwt.envelope import BadJwt
from jetlake.subjects import check_filter

ENTRIES_MAX = 4096  # that one template may become: tags multiply them
_FUNCTION = re.compile(r"\{\{\s*([a-z-]+)\(\s*([^)]*?)\s*\)\s*\}\}", re.IGNORECASE)


class Names:
    """What the functions of a template stand for."""

    def __init__(self, name: str, subject: str, tags: list[str]) -> None:
        self.name, self.subject, self._tags = name, subject, tags

    def tag(self, key: str) -> list[str]:
        """The values of a tag."""
        prefix = key.lower() + ":"
        return [tag[len(prefix) :] for tag in self._tags if tag.lower().startswith(prefix)]


def fill(limits: UserLimits, user: Names, account: Names) -> UserLimits:
    """A template with all functions replaced. Raises BadJwt."""
    return replace(limits, pub=_lists(limits.pub, user, account), sub=_lists(limits.sub, user, account))


def _lists(lists: SubjectLists, user: Names, account: Names) -> SubjectLists:
    allow = _entries(lists.allow, user, account, is_strict=False)
    deny = _entries(lists.deny, user, account, is_strict=True)
    if lists.allow and not allow:
        return SubjectLists(deny=[*deny, ">"])
    return SubjectLists(allow=allow, deny=deny)


def _entries(templates: list[str], user: Names, account: Names, *, is_strict: bool) -> list[str]:
    if not any("{{" in template for template in templates):
        return templates
    entries: list[str] = []
    for template in templates:
        for entry in _filled(template, user, account):
            if _is_subject(entry):
                entries.append(entry)
            elif is_strict:
                raise BadJwt(f"the template {template!r} does not become a subject")
            if len(entries) > ENTRIES_MAX:
                raise BadJwt(f"the template {template!r} becomes more than {ENTRIES_MAX} entries")
    return entries


def _filled(template: str, user: Names, account: Names) -> list[str]:
    """The template with each combination of the values of its functions."""
    values = [_values(found[1].lower(), found[2], user, account) for found in _FUNCTION.finditer(template)]
    pieces = _FUNCTION.split(template)[::3]
    return [
        "".join(itertools.chain(*itertools.zip_longest(pieces, chosen, fillvalue="")))
        for chosen in itertools.islice(itertools.product(*values), ENTRIES_MAX + 1)
    ]


def _values(function: str, argument: str, user: Names, account: Names) -> list[str]:
    if not argument:
        fixed = {"name": user.name, "subject": user.subject}
        fixed |= {"account-name": account.name, "account-subject": account.subject}
        if function in fixed:
            return [fixed[function]]
    if function in ("tag", "account-tag"):
        return (user if function == "tag" else account).tag(argument) or [""]
    raise BadJwt(f"the template function {function!r} is not known")


def _is_subject(text: str) -> bool:
    try:
        check_filter(text)
    except BadSubject:
        return False
    return " " not in text
