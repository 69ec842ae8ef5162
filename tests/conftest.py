"""Every store that a test opens or stops is checked, except where the test damages it on purpose."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

LONG = ("tests/spark/test_kill.py", "tests/crash/", "tests/test_", "tests/spark/")


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile("jetlake", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("jetlake")  # how long an example takes depends on what else the machine does
    config.addinivalue_line("markers", "damages: the test damages a store on purpose, so that a check would complain")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take minutes come first, so that they do not run alone at the end.

    A test of nats-server alone that fails is run again: its threads race each other on a busy machine, and what it does
    one time in a thousand says nothing about JetLake. Tests of JetLake are never repeated.
    """
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get("kind") == "nats-server":
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1))

    def place(item: pytest.Item) -> int:
        return next((place for place, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))

    items.sort(key=place)


@pytest.fixture(autouse=True)
def verify_stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "damages" not in request.keywords:
        monkeypatch.setenv("JETLAKE_VERIFY", "1")
