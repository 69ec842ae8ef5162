"""Tokens in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetlake import jwt
from jetlake.config import ResolverOptions
from jetlake.server.resolver import DirectoryResolver, ResolverError
from tests.jwt.tokens import ACCOUNT, OPERATOR, OTHER, token


def resolver(
    path: Path, preload: dict[str, str] | None = None, kind: str = "full", **options: Any
) -> DirectoryResolver:
    made = DirectoryResolver(ResolverOptions(kind=kind, directory=str(path / "jwt"), **options))
    made.start(preload or {})
    return made


def issued(time_s: int) -> str:
    claims = {"sub": ACCOUNT.public, "iat": time_s, "nats": {"type": "account", "version": 2}}
    return jwt.encode(claims, OPERATOR)


def test_what_is_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    resolver(tmp_path).store(ACCOUNT.public, issued(5))
    again = resolver(tmp_path)
    assert again.fetch(ACCOUNT.public) == issued(5) and again.accounts() == [ACCOUNT.public]
    assert again.fetch(OTHER.public) is None


def test_a_preload_counts_if_it_is_newer(tmp_path: Path) -> None:
    resolver(tmp_path, {ACCOUNT.public: issued(5)})
    assert resolver(tmp_path, {ACCOUNT.public: issued(4)}).fetch(ACCOUNT.public) == issued(5)
    assert resolver(tmp_path, {ACCOUNT.public: issued(6)}).fetch(ACCOUNT.public) == issued(6)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "jwt").mkdir()
    for name in ("x.jwt", "notes.txt", f"{ACCOUNT.public}.jwt.deleted"):
        (tmp_path / "jwt" / name).write_text("?")
    found = resolver(tmp_path)
    assert found.accounts() == [] and len(list((tmp_path / "jwt").iterdir())) == 3


@pytest.mark.parametrize("hard", [False, True])
def test_delete_keeps_a_copy_unless_it_is_hard(tmp_path: Path, hard: bool) -> None:
    found = resolver(tmp_path, allow_delete=True, hard_delete=hard)
    found.store(ACCOUNT.public, issued(1))
    found.delete(ACCOUNT.public)
    assert found.fetch(ACCOUNT.public) is None
    assert (tmp_path / "jwt" / f"{ACCOUNT.public}.jwt.deleted").exists() is not hard
    with pytest.raises(ResolverError):
        found.delete(ACCOUNT.public)


def test_a_full_directory_and_a_full_cache(tmp_path: Path) -> None:
    other = token(OPERATOR, OTHER, "account")
    full = resolver(tmp_path / "a", limit=1)
    full.store(ACCOUNT.public, issued(1))
    full.store(ACCOUNT.public, issued(2))
    with pytest.raises(ResolverError, match="jwt store is full"):
        full.store(OTHER.public, other)
    cache = resolver(tmp_path / "b", kind="cache", limit=1)
    cache.store(ACCOUNT.public, issued(1))
    cache.store(OTHER.public, other)
    assert cache.accounts() == [OTHER.public]


def test_what_a_cache_holds_grows_old(tmp_path: Path) -> None:
    cache = resolver(tmp_path, kind="cache", ttl_s=1e-9)
    cache.store(ACCOUNT.public, issued(1))
    assert cache.fetch(ACCOUNT.public) is None and cache.accounts() == []


def test_the_digest_tells_whether_two_have_the_same(tmp_path: Path) -> None:
    one, two = resolver(tmp_path / "a"), resolver(tmp_path / "b")
    assert one.digest() == bytes(32)
    for name, text in ((ACCOUNT.public, issued(1)), (OTHER.public, token(OPERATOR, OTHER, "account"))):
        one.store(name, text)
    for name, text in reversed(list(one.tokens())):
        two.store(name, text)
    assert one.digest() == two.digest() != bytes(32)
