"""Every store that a test opens or stops is checked, except where the test damages it on purpose."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "damages: the test damages a store on purpose, so that a check would complain")


@pytest.fixture(autouse=True)
def verify_stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "damages" not in request.keywords:
        monkeypatch.setenv("JETLAKE_VERIFY", "1")
