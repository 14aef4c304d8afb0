"""What every measure of Spark needs: a tidelog broker, a Python with pyspark, and a workload that
runs in a process of its own and prints its rates as JSON on its last line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.arena import Arena
from bench.peers import BrokerProcess
from bench.spark.environment import SparkEnvironment, Unavailable, prepare
from bench.table import Report
from bench.tools import ToolFailed

REPOSITORY = Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 1800

Rounds = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Stage:
    arena: Arena
    environment: SparkEnvironment
    broker: BrokerProcess

    def run(self, module: str, rows: int, *more: str) -> Rounds:
        """Raises ToolFailed with the end of what the workload said."""
        command = [str(self.environment.python), "-m", f"bench.spark.{module}"]
        command += ["--bootstrap", f"127.0.0.1:{self.broker.port}", "--rows", str(rows)]
        command += ["--rounds", str(self.arena.size.rounds), *more]
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=_tree_environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            raise ToolFailed(f"{module} ended with {done.returncode}: {done.stderr[-2000:]}")
        found: Rounds = json.loads(lines[-1])
        return found


def measured(arena: Arena, title: str, measure: Callable[[Stage], Report]) -> Report:
    """What `measure` reports, or why nothing was measured."""
    peer = arena.tidelog
    if peer is None:
        return Report(title, remarks=["needs tidelog among the peers: nothing measured"])
    try:
        environment = prepare(REPOSITORY / ".bench")
    except Unavailable as reason:
        return Report(title, remarks=[f"nothing measured: {reason}"])
    with arena.running(peer, {"num.partitions": "2"}) as broker:
        return measure(Stage(arena, environment, broker))


def _tree_environment() -> dict[str, str]:
    """The tree is measured as if it were installed: its modules may keep their bytecode."""
    path = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path}
