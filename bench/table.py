"""Rows of figures, their targets, and how they are printed.

A Figure compares peers: ratio = tidelog / kafka, held against a target that is a floor where more
is better and a ceiling where less is better; one with an `own_limit` is held against that alone,
whatever the peer needs; one with both has to meet one of them. A Series compares tidelog with
itself at growing sizes: flat as long as the largest size costs at most FLAT_LIMIT times the
smallest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bench.arena import Sample

CLIENT_BUSY_LIMIT = 0.85
FLAT_LIMIT = 1.3
CPU_SECONDS_MIN = 0.1  # with less, what a broker does by itself counts for too much


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure of all peers."""

    label: str
    unit: str
    values: Mapping[str, Sample]
    higher_is_better: bool
    target: float | None = None
    client_alone: float | None = None  # the same loop against a server that does nothing
    own_limit: float | None = None  # in the unit, for tidelog

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.values.get("tidelog"), self.values.get("kafka")
        return ours.value / theirs.value if ours and theirs and theirs.value else None

    @property
    def cpu_ratio(self) -> float | None:
        """tidelog's processor time over Kafka's, for the same work; None where it is too little."""
        ours, theirs = self.values.get("tidelog"), self.values.get("kafka")
        if not ours or not theirs or ours.broker_seconds is None or theirs.broker_seconds is None:
            return None
        if min(ours.broker_seconds, theirs.broker_seconds) < CPU_SECONDS_MIN:
            return None
        return ours.broker_seconds / theirs.broker_seconds

    @property
    def verdict(self) -> str:
        judged = [
            found >= bound if self.higher_is_better else found <= bound
            for found, bound in self._judged
            if found is not None and bound is not None
        ]
        if not judged:
            return ""
        return "ok" if any(judged) else "MISS"

    @property
    def _judged(self) -> list[tuple[float | None, float | None]]:
        """What is held against what; one of them is enough."""
        ours = self.values.get("tidelog")
        return [
            (None if ours is None else ours.value, self.own_limit),
            (self.ratio, self.target),
        ]

    @property
    def aim(self) -> str:
        sign = ">=" if self.higher_is_better else "<="
        aims = []
        if self.own_limit is not None:
            aims.append(f"{sign} {self.own_limit:g} {self.unit}")
        if self.target is not None:
            aims.append(f"{sign} {self.target:g}x")
        return " or ".join(aims) or "-"

    def notes(self, against: str) -> str:
        names = {"kafka": against}
        bound = [
            f"{names.get(name, name)}: client {sample.client_busy:.0%} busy"
            for name, sample in self.values.items()
            if sample.client_busy is not None and sample.client_busy > CLIENT_BUSY_LIMIT
        ]
        bound += [
            f"{names.get(name, name)}: {sample.note}"
            for name, sample in self.values.items()
            if sample.note
        ]
        if self.client_alone is not None:
            bound.append(f"client alone {number(self.client_alone)}")
        return "; ".join(bound)

    def cells(self, against: str = "kafka") -> list[str]:
        return [
            self.label,
            self.unit,
            *(number(sample.value) if sample else "-" for sample in self._in_columns()),
            f"{self.ratio:.2f}x" if self.ratio is not None else "-",
            self.aim,
            self.verdict,
            f"{self.cpu_ratio:.2f}x" if self.cpu_ratio is not None else "-",
            self.notes(against),
        ]

    @property
    def found(self) -> str:
        """What the aim is about."""
        if self.own_limit is not None:
            return f"{number(self.values['tidelog'].value)} {self.unit}"
        return f"{self.ratio:.2f}x"

    def _in_columns(self) -> list[Sample | None]:
        return [self.values.get("kafka"), self.values.get("tidelog")]

    def plain(self) -> dict[str, object]:
        return {
            "label": self.label,
            "unit": self.unit,
            "values": {name: asdict(sample) for name, sample in self.values.items()},
            "higher_is_better": self.higher_is_better,
            "ratio": self.ratio,
            "cpu_ratio": self.cpu_ratio,
            "target": self.target,
            "own_limit": self.own_limit,
            "verdict": self.verdict,
            "client_alone": self.client_alone,
        }


@dataclass(frozen=True, slots=True)
class Series:
    """One cost of tidelog at growing sizes; limit None is a figure to know, not to judge."""

    label: str
    unit: str
    points: Sequence[tuple[str, float]]
    limit: float | None = FLAT_LIMIT

    @property
    def growth(self) -> float:
        return self.points[-1][1] / self.points[0][1]

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        return "flat" if self.growth <= self.limit else "NOT FLAT"

    def cells(self) -> list[str]:
        points = "  ".join(f"{size}: {number(value)}" for size, value in self.points)
        growth = f"{self.growth:.2f}x" if len(self.points) > 1 else "-"
        return [self.label, self.unit, points, growth, self.verdict]

    def plain(self) -> dict[str, object]:
        return {
            "label": self.label,
            "unit": self.unit,
            "points": [list(point) for point in self.points],
            "limit": self.limit,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What one measure gives back."""

    title: str
    figures: Sequence[Figure] = ()
    series: Sequence[Series] = ()
    remarks: Sequence[str] = field(default=())
    against: str = "kafka"  # what the column of the peer is called

    def text(self) -> str:
        parts = [f"## {self.title}"]
        if self.figures:
            head = [
                "measure",
                "unit",
                self.against,
                "tidelog",
                "ratio",
                "target",
                "",
                "cpu",
                "notes",
            ]
            parts.append(columns([head, *(figure.cells(self.against) for figure in self.figures)]))
        if self.series:
            head = ["tidelog at growing sizes", "unit", "figures", "growth", ""]
            parts.append(columns([head, *(series.cells() for series in self.series)]))
        parts += [f"({remark})" for remark in self.remarks]
        return "\n".join(parts) + "\n"

    def verdicts(self) -> list[str]:
        rows: list[Figure | Series] = [*self.figures, *self.series]
        return [row.verdict for row in rows if row.verdict]

    def misses(self) -> list[str]:
        missed = [
            f"{self.title}: {figure.label}: {figure.found}, target {figure.aim}"
            for figure in self.figures
            if figure.verdict == "MISS"
        ]
        return missed + [
            f"{self.title}: {series.label}: grows {series.growth:.2f}x"
            for series in self.series
            if series.verdict == "NOT FLAT"
        ]

    def plain(self) -> dict[str, object]:
        return {
            "title": self.title,
            "figures": [figure.plain() for figure in self.figures],
            "series": [series.plain() for series in self.series],
            "remarks": list(self.remarks),
        }


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded so that it reads well in a terminal too."""
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
