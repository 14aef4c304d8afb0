"""Plots for a terminal, made of block characters: values over time, and how values are spread."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import Final

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
BAR: Final = "█"
HALF_BAR: Final = "▌"


def over_time(values: Sequence[float], *, width: int, height: int, unit: str) -> list[str]:
    """A column for each slice of time, its height the mean value in it; the scale begins at 0."""
    if not values:
        return []
    columns = resample(values, width)
    top = max(columns) or 1.0
    steps = [round(value / top * height * 8) for value in columns]
    label_width = max(len(short_number(top)), 1)
    lines = []
    for row in reversed(range(height)):
        label = short_number(top) if row == height - 1 else "0" if row == 0 else ""
        cells = "".join(BLOCKS[min(8, max(0, step - row * 8))] for step in steps)
        lines.append(f"{label:>{label_width}} │{cells}".rstrip())
    lines[0] += f"  {unit}"
    lines.append(f"{'':>{label_width}} └{'─' * len(columns)}")
    return lines


def resample(values: Sequence[float], width: int) -> list[float]:
    """At most `width` means of neighbours."""
    count = min(width, len(values))
    bounds = [round(index * len(values) / count) for index in range(count + 1)]
    return [sum(values[low:high]) / (high - low) for low, high in pairwise(bounds)]


def spread(values: Sequence[float], *, width: int, rows: int, unit: str) -> list[str]:
    """A histogram: a bar for each range of values, ranges of equal ratio."""
    if not values:
        return []
    low, high = min(values), max(values)
    low = low if low > 0 else max(high / 1_000, 1e-9)
    ratio = (high / low) ** (1 / rows) if high > low else 1.0
    edges = [low * ratio**index for index in range(1, rows)] if ratio > 1 else []
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[bisect_right(edges, value)] += 1
    most = max(counts)
    lines = []
    for index, count in enumerate(counts):
        upper = edges[index] if index < len(edges) else high
        length = count / most * width
        bar = BAR * int(length) + (HALF_BAR if length % 1 >= 0.5 else "")
        bar = bar or (HALF_BAR if count else "")
        lines.append(f"≤ {short_number(upper):>7} {unit} │{bar} {count:,}".rstrip())
    return lines


def short_number(value: float) -> str:
    """1234567 as 1.23M; small ones with three digits."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of values in order; the nearest rank."""
    assert ordered
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
