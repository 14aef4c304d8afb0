"""Plots as SVG, drawn by the server: lines over time with axes, and sparklines.

    lag = plot("Lag of billing", [Line("lag", points)], unit="records")
    {{ lag }}        in a template

A plot works out numbers and texts; `templates/plots/` writes them, escaped like every other page.
A gap in a line is a point without a value. Lines have at most POINTS_MAX points, plots LINES_MAX
lines, so a page stays small whatever is plotted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tidelog.tools.cli.output import human_bytes
from tidelog.tools.console.page import templates

WIDTH: Final = 600  # of the plane of the lines, which the page stretches to its place
HEIGHT: Final = 140
MARGIN: Final = 2  # for half a line's width
POINTS_MAX: Final = 300
LINES_MAX: Final = 6
TICKS: Final = 2
SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 28

Point = tuple[float, float | None]
"""Milliseconds since 1970, and the value; None is a gap."""


class Line(NamedTuple):
    name: str
    points: Sequence[Point]


class Drawn(NamedTuple):
    """A line as the path of an SVG; `area` is the ground below it."""

    name: str
    number: int  # of its colour, from 1
    path: str
    area: str
    last: str


@dataclass(frozen=True)
class Plot:
    title: str
    description: str
    lines: Sequence[Drawn]
    times: Sequence[str]  # from left to right, at equal distances
    values: Sequence[str]  # from the top down, at equal distances
    left_out: int = 0
    template: str = "plots/plot.html"

    def __html__(self) -> str:
        page = templates().get_template(self.template)
        return page.render(plot=self, width=WIDTH, height=HEIGHT)


def plot(
    title: str,
    lines: Sequence[Line],
    *,
    unit: str = "",
    format: Callable[[float], str] | None = None,
) -> Plot:
    """`format` writes a value; without it, the unit `B` or `B/s` is written as bytes are."""
    shown = [Line(line.name, thinned(line.points)) for line in lines[:LINES_MAX]]
    write = format or _format_of(unit)
    places = [at for line in shown for at, value in line.points if value is not None]
    tops = [value for line in shown for _, value in line.points if value is not None]
    if not places:
        return Plot(title, f"{title}: nothing yet.", (), (), ())
    first, last = min(places), max(max(places), min(places) + 1)
    top = _round_top(max(tops))

    def x(at: float) -> float:
        return (at - first) / (last - first) * WIDTH

    def y(value: float) -> float:
        return HEIGHT - MARGIN - max(value, 0.0) / top * (HEIGHT - 2 * MARGIN)

    drawn = [
        Drawn(line.name, number, *_paths(line.points, x, y), _last_text(line.points, write))
        for number, line in enumerate(shown, 1)
    ]
    told = "; ".join(f"{line.name} {line.last}" for line in drawn)
    return Plot(
        title,
        f"{title} from {_clock(first)} to {_clock(last)} UTC. Last: {told}.",
        drawn,
        [_clock(at) for at in _between(first, last)],
        [write(each) for each in (top, top / 2, 0.0)],
        max(len(lines) - LINES_MAX, 0),
    )


def sparkline(title: str, points: Sequence[Point], *, unit: str = "") -> Plot:
    """A small line for the row of a table."""
    some = thinned(points, 60)
    known = [(at, value) for at, value in some if value is not None]
    if len(known) < 2:
        return Plot(title, f"{title}: nothing yet.", (), (), (), template="plots/spark.html")
    first, last = known[0][0], max(known[-1][0], known[0][0] + 1)
    top = max(max(value for _, value in known), 1e-9)

    def x(at: float) -> float:
        return 2 + (at - first) / (last - first) * (SPARK_WIDTH - 4)

    def y(value: float) -> float:
        return SPARK_HEIGHT - 3 - max(value, 0.0) / top * (SPARK_HEIGHT - 6)

    write = _format_of(unit)
    drawn = Drawn(title, 1, *_paths(some, x, y), write(known[-1][1]))
    return Plot(title, f"{title}: {drawn.last}", (drawn,), (), (), template="plots/spark.html")


def thinned(points: Sequence[Point], count: int = POINTS_MAX) -> Sequence[Point]:
    """At most so many, the last one among them."""
    if len(points) <= count:
        return points
    step = math.ceil(len(points) / count)
    return points[(len(points) - 1) % step :: step]


def _paths(
    points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]
) -> tuple[str, str]:
    """The line, broken at gaps, and the ground below it."""
    line: list[str] = []
    ground: list[str] = []
    run: list[tuple[float, float]] = []
    for at, value in [*points, (0.0, None)]:
        if value is not None:
            run.append((x(at), y(value)))
        elif run:
            steps = " L".join(f"{px:.1f} {py:.1f}" for px, py in run)
            # A lone point is drawn as a dot: a line of no length with round ends.
            line.append(f"M{steps}" + (" h0.01" if len(run) == 1 else ""))
            base = y(0.0)
            ground.append(f"M{run[0][0]:.1f} {base:.1f} L{steps} L{run[-1][0]:.1f} {base:.1f} Z")
            run = []
    return " ".join(line), " ".join(ground)


def _last_text(points: Sequence[Point], write: Callable[[float], str]) -> str:
    known = [value for _, value in points if value is not None]
    return write(known[-1]) if known else "-"


def _between(first: float, last: float) -> list[float]:
    """Where the times stand; those of a short while would all be the same."""
    count = TICKS if last - first >= TICKS * 1_000 else 1
    return [first + (last - first) * index / count for index in range(count + 1)]


def _clock(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).strftime("%H:%M:%S")


def _round_top(value: float) -> float:
    """The next of 1, 2, 5, 10, ... that is not below the value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value)


def _format_of(unit: str) -> Callable[[float], str]:
    if unit in ("B", "B/s"):
        rest = unit.removeprefix("B")
        return lambda value: human_bytes(round(value)) + rest
    return _short_number


def _short_number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
