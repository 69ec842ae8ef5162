"""A bar chart in text, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bars(rows: Sequence[tuple[str, float]], width: int = 50) -> list[str]:
    """One line for each label: its bar, as long as its share of the largest, and its number."""
    if not rows:
        return []
    label_width = max(len(label) for label, _ in rows)
    largest = max(value for _, value in rows) or 1
    lines = []
    for label, value in rows:
        whole, eighths = divmod(round(8 * width * value / largest), 8)
        bar = "█" * whole + (_EIGHTHS[eighths] if eighths else "")
        lines.append(f"{label:<{label_width}} {bar:<{width}} {value:,.0f}")
    return lines
