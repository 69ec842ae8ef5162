from __future__ import annotations

from jetlake.server.failures import Failures


def fail(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_an_error_is_told_in_full_once_and_then_in_a_line() -> None:
    lines: list[tuple[str, str]] = []
    failures = Failures(lambda level, line: lines.append((level, line)))
    for text in ("one", "two"):
        failures("request", fail(text))
    assert [line for level, line in lines if level == "error" and "failed" in line] == [
        "request failed: ValueError: one",
        "request failed: ValueError: two",
    ]
    assert [line for _, line in lines].count("Traceback (most recent call last):") == 1
    assert failures.count == 2


def test_no_line_of_it_holds_another() -> None:
    lines: list[str] = []
    Failures(lambda level, line: lines.append(line))("request", fail("a\nb"))
    assert [line for line in lines if "\n" in line] == ["request failed: ValueError: a\nb"]  # which the log escapes
