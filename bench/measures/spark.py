"""PySpark on two cores, rows of 100 B: Spark's own Kafka connector (column kafka) and
format("tidelog"), both against the same tidelog broker, in one warm Spark session of pyspark 4.2.0.

Besides the peer there are two things of Spark itself to hold tidelog against: the transport ceiling
(prebuilt Arrow batches through the same Spark) and the micro-batch of an empty source. They stand
in the column kafka too, and so do reading through the broker where segment files are read, and
tidelog's own sink at least once where it writes exactly once. Within Spark the two ways to read are
bound by the same transport, so they are compared without Spark as well: the same two tasks, a
process each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.arena import Arena, Sample
from bench.spark.stage import Rounds, Stage, measured
from bench.table import Figure, Report

TITLE = "Spark"

# Ratios to Spark's own connector may not fall below those of docs/benchmarks.md. One run differs
# from the next by a few per cent, so a target is nine tenths of the ratio there; a new run that
# goes into the document takes its targets along.
BATCH_READ, STREAMING_READ = 2.89, 1.62  # of 3.21 and 1.80
BATCH_WRITE, STREAMING_WRITE = 2.1, 1.4  # of 2.33 and 1.55


def run(arena: Arena) -> Report:
    return measured(arena, TITLE, _report)


def _report(stage: Stage) -> Report:
    rounds = _workload(stage)
    cold: dict[str, list[float]] = {}
    for _ in range(stage.arena.size.of(1, 2)):
        for connector in ("kafka", "tidelog") if stage.environment.jars else ("tidelog",):
            found = _workload(stage, "--cold", connector)
            cold.setdefault(connector, []).extend(found["cold read"][connector])
    remarks = [stage.environment.remark] if stage.environment.remark else []
    return Report(TITLE, _figures({**rounds, "cold read": cold}), remarks=remarks)


def _workload(stage: Stage, *more: str) -> Rounds:
    jars = ",".join(map(str, stage.environment.jars))
    places = ("--data", str(stage.broker.data), "--jars", jars)
    rows = stage.arena.size.of(1_000_000, 2_000_000)
    return stage.run("workload", rows, *places, *(more or ("--fill",)))


def _figures(rounds: Rounds) -> list[Figure]:
    figures = [
        _figure("batch read", rounds["batch read"], BATCH_READ),
        _figure("first, cold, batch read", rounds["cold read"], 1.5),
        _against("batch read / transport ceiling", rounds["batch read"], rounds["ceiling"], 0.8),
        _figure("streaming read", rounds["stream read"], STREAMING_READ),
        _figure("batch write", rounds["batch write"], BATCH_WRITE),
        _figure("streaming write", rounds["stream write"], STREAMING_WRITE),
        Figure(
            "exactly once / at least once",
            "M rows/s",
            {
                "kafka": Sample(max(rounds["exactly once"]["at-least-once"]) / 1e6),
                "tidelog": Sample(max(rounds["exactly once"]["exactly-once"]) / 1e6),
            },
            True,
            0.7,
        ),
        _against("segment files / through broker", rounds["direct read"], rounds["batch read"]),
        Figure(
            "the same two tasks without Spark",
            "M rows/s",
            {
                "kafka": Sample(max(rounds["readers alone"]["broker"]) / 1e6),
                "tidelog": Sample(max(rounds["readers alone"]["files"]) / 1e6),
            },
            True,
            2.0,
        ),
    ]
    floor = {
        "kafka": Sample(min(rounds["floor"]["empty source"])),
        "tidelog": Sample(min(rounds["floor"]["tidelog"])),
    }
    formats = [
        _against(
            f"pipeline source, {name} / JSON",
            {"tidelog": rounds["formats"][kind]},
            {"tidelog": rounds["formats"]["json"]},
            0.5,
        )
        for kind, name in (("avro", "Avro"), ("protobuf", "Protobuf"))
    ]
    return [*figures, Figure("micro-batch / empty source", "ms", floor, False, 1.2), *formats]


def _figure(label: str, rounds: Mapping[str, Sequence[float]], target: float) -> Figure:
    values = {name: Sample(max(taken) / 1e6) for name, taken in rounds.items()}
    return Figure(label, "M rows/s", values, True, target)


def _against(
    label: str,
    ours: Mapping[str, Sequence[float]],
    other: Mapping[str, Sequence[float]],
    target: float | None = None,
) -> Figure:
    """Ours against a figure of this machine that stands in the other column."""
    standard = next(name for name in ("spark", "tidelog") if name in other)
    values = {
        "kafka": Sample(max(other[standard]) / 1e6),
        "tidelog": Sample(max(ours["tidelog"]) / 1e6),
    }
    return Figure(label, "M rows/s", values, True, target)
