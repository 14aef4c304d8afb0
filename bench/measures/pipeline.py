"""A declared pipeline beside the same query by hand, in one warm Spark session of two cores: JSON
orders from a topic to a topic. By hand stands in the column kafka. The pipeline also finds broken
records and writes them to a dead-letter topic; it may take half as long again.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

from bench.arena import Arena, Sample
from bench.measures.spark import REPOSITORY, TIMEOUT_S, tree_environment
from bench.spark.environment import Unavailable, prepare
from bench.table import Figure, Report
from bench.tools import ToolFailed

TITLE = "declared pipelines"
TARGET = 1 / 1.5


def run(arena: Arena) -> Report:
    peer = arena.tidelog
    if peer is None:
        return Report(TITLE, remarks=["needs tidelog among the peers: nothing measured"])
    try:
        environment = prepare(REPOSITORY / ".bench")
    except Unavailable as reason:
        return Report(TITLE, remarks=[f"nothing measured: {reason}"])
    with arena.running(peer, {"num.partitions": "2"}) as broker:
        command = [str(environment.python), "-m", "bench.spark.pipeline_workload"]
        command += ["--bootstrap", f"127.0.0.1:{broker.port}"]
        command += ["--rows", str(arena.size.of(500_000, 1_000_000))]
        command += ["--rounds", str(arena.size.rounds)]
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=tree_environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise ToolFailed(f"the pipelines ended with {done.returncode}: {done.stderr[-2000:]}")
    rounds: Mapping[str, Mapping[str, Sequence[float]]] = json.loads(lines[-1])
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
