"""A declared pipeline beside the same query by hand, in one warm Spark session of two cores: JSON
orders from a topic to a topic. By hand stands in the column kafka. The pipeline also finds broken
records and writes them to a dead-letter topic; it may take half as long again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.arena import Arena, Sample
from bench.spark.stage import Stage, measured
from bench.table import Figure, Report

TITLE = "declared pipelines"
TARGET = 1 / 1.5


def run(arena: Arena) -> Report:
    return measured(arena, TITLE, _report)


def _report(stage: Stage) -> Report:
    rounds = stage.run("pipeline_workload", stage.arena.size.of(500_000, 1_000_000))
    return Report(
        TITLE,
        [
            _figure("JSON, nothing broken", rounds["orders.clean"]),
            _figure("JSON, 1 record in 100 broken", rounds["orders.broken"]),
        ],
    )


def _figure(label: str, rates: Mapping[str, Sequence[float]]) -> Figure:
    values = {
        "kafka": Sample(max(rates["by hand"]) / 1e6),
        "tidelog": Sample(max(rates["pipeline"]) / 1e6),
    }
    return Figure(label, "M rows/s", values, True, TARGET)
