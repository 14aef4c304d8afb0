"""Fixtures started thousands of times by pytest with xdist; nothing of them may stay.

Each test has a broker of its own, as a process or on a thread of the worker, or (every CLUSTER_EACH
tests) a cluster of three. It writes a record to it and reads it. pytest runs the tests in workers,
as it does for users of the plug-in.

What must hold:
- no test fails;
- a worker ends with the descriptors, the threads and the child processes that it had after its
  first tests;
- no process, no listening socket and no temporary directory is left when pytest has ended.

    python -m tests.support.fixture_harness --starts 5000 [--workers 4]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import psutil

CLUSTER_EACH = 25
WORKER_OF = "TIDELOG_FIXTURE_HARNESS"  # in the environment of everything that pytest starts
END_WITHIN_S = 30.0
TESTS = """
import pytest

from tidelog.testing import Broker


def round_trip(service):
    topic = service.create_topic("orders")
    topic.send("one")
    assert [record.value for record in topic.wait_for(1, timeout=60)] == [b"one"]


@pytest.mark.parametrize("number", range(BROKERS))
def test_a_fresh_broker(number, tidelog_broker):
    round_trip(tidelog_broker)


@pytest.mark.parametrize("number", range(THREADS))
def test_a_broker_in_this_process(number):
    with Broker(in_process=True) as broker:
        round_trip(broker)


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_a_cluster(number, tidelog_cluster):
    round_trip(tidelog_cluster)
"""
CONFTEST = """
import json
import os
from pathlib import Path

import psutil
import pytest

from tidelog.testing import Broker

WARM_UP = 2  # after which what stays for good (sockets of imports, a pool of threads) is there


def held():
    process = psutil.Process()
    return {
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "children": [each.pid for each in process.children(recursive=True)],
    }


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays(worker_id):
    from test_starts import round_trip

    for _ in range(WARM_UP):
        for in_process in (False, True):
            with Broker(in_process=in_process) as broker:
                round_trip(broker)
    before = held()
    yield
    Path(os.environ["TIDELOG_FIXTURE_RESULTS"], worker_id).write_text(
        json.dumps([before, held()])
    )
"""


class FixtureHarness:
    def __init__(
        self,
        directory: Path,
        starts: int,
        workers: int,
        more_tests: str = "",
        end_within_s: float = END_WITHIN_S,
    ) -> None:
        clusters = -(-starts // CLUSTER_EACH)
        threads = (starts - clusters) // 2
        self.kinds = {
            "BROKERS": starts - clusters - threads,
            "THREADS": threads,
            "CLUSTERS": clusters,
        }
        self._workers = workers
        self._end_within_s = end_within_s
        self._mark = uuid4().hex
        self._tests = directory / "tests"
        self._results = directory / "results"
        self._temporary = directory / "temporary"
        for each in (self._tests, self._results, self._temporary):
            each.mkdir()
        numbers = "\n".join(f"{name} = {number}" for name, number in self.kinds.items())
        (self._tests / "test_starts.py").write_text(f"{numbers}\n{TESTS}{more_tests}")
        (self._tests / "conftest.py").write_text(CONFTEST)
        (self._tests / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
        self.output = ""

    def run(self) -> list[str]:
        """What is wrong, if anything is."""
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(self._workers), "."]
        done = subprocess.run(
            command,
            cwd=self._tests,
            env={
                **{name: text for name, text in os.environ.items() if "PYTEST" not in name},
                WORKER_OF: self._mark,
                "TIDELOG_FIXTURE_RESULTS": str(self._results),
                "TMPDIR": str(self._temporary),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.output = done.stdout
        return [
            *self._failures(done.returncode),
            *self._held_by_workers(),
            *(f"process left: {each}" for each in self._processes_left()),
            *(f"directory left: {each.name}" for each in self._temporary.glob("tidelog-*")),
        ]

    def _failures(self, code: int) -> list[str]:
        passed = re.search(r"(\d+) passed", self.output)
        wanted = sum(self.kinds.values())
        if code == 0 and passed is not None and int(passed[1]) >= wanted:
            return []
        return [f"not all of {wanted} tests passed:\n{self.output[-4000:]}"]

    def _held_by_workers(self) -> list[str]:
        problems = []
        reports = sorted(self._results.iterdir())
        if len(reports) != self._workers:
            problems.append(f"{len(reports)} of {self._workers} workers have told what they hold")
        for report in reports:
            before, after = json.loads(report.read_text())
            problems += [
                f"{report.name} holds more {what}: {before[what]} before, {after[what]} after"
                for what in ("descriptors", "threads")
                if after[what] > before[what]
            ]
            if after["children"]:
                problems.append(f"{report.name} has children left: {after['children']}")
        return problems

    def _processes_left(self) -> list[str]:
        """With what they listen on. Who was told to end has a while to do it."""
        until = time.monotonic() + self._end_within_s
        while (left := self._marked()) and time.monotonic() < until:
            psutil.wait_procs(left, timeout=1)
        return [f"{each.pid} {' '.join(each.cmdline())}" for each in left]

    def end_what_is_left(self) -> None:
        for process in self._marked():
            process.kill()

    def _marked(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(WORKER_OF) == self._mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args(given)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fixture-harness-") as directory:
        harness = FixtureHarness(Path(directory), arguments.starts, arguments.workers)
        problems = harness.run()
    kinds = harness.kinds
    sys.stdout.write(
        f"{kinds['BROKERS']} brokers as processes, {kinds['THREADS']} in process, "
        f"{kinds['CLUSTERS']} clusters, {arguments.workers} workers, "
        f"{time.monotonic() - started:.0f} s: {'; '.join(problems) or 'all well'}\n"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
