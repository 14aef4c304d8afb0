"""Drivers, executors and the broker killed (-9) while a query writes exactly once, without Spark.

A small engine stands for Spark: a driver process with a checkpoint folder, and worker processes
that run attempts of tasks. What it calls is the sink's own code (`BatchCommit`, `ClusterLedger`,
`TaskSlots`). Batches are split into tasks anew whenever they are repeated. Attempts fail halfway
and are run twice. Drivers are killed with their workers, or stopped at a step of their commit and
woken as zombies when the next driver is at some step of its own. In the end a reader with
read_committed must find every row once.

    python -m tests.support.sink_kill_harness [--batches 300] [--kills 100] [--seed 7] [--bug NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tests.support.broker_process import BrokerProcess, dies_with_us
from tidelog.client.admin.topics import NewTopic
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.cluster import BlockingCluster
from tidelog.client.columns.range_reader import RangeReader
from tidelog.spark.batch_commit import BatchCommit, BatchMarker, TaskTransaction
from tidelog.spark.options import SinkOptions, sink_options
from tidelog.spark.sink_ledger import ClusterLedger, task_ids_prefix
from tidelog.spark.task_slots import TaskSlots
from tidelog.types import TopicPartition

TOPIC = "out"
PARTITIONS = 3
ROWS_PER_BATCH = 40
WORKERS = 2
QUERY_ID = "00000000-0000-4000-8000-000000000000"
PAUSE_MAX_S = 0.15
STEPS = ("fence", "marker", "decide", "end", "done")
STEP_TIMEOUT_S = 30.0
RUN_TIMEOUT_S = 900.0
VICTIMS = ("driver", "worker", "zombie", "broker")
POLL_S = 0.003


class Broker(Protocol):
    """What may be killed and started again on the same port."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...


# Bugs


class PausingLedger(ClusterLedger):
    """Takes its time before each step, and says which it is, so that kills fall between them. It
    stays before a step at which it is held.
    """

    step_file = Path()

    async def pause(self, step: str) -> None:
        self.step_file.write_text(step)
        await asyncio.sleep(random.random() * PAUSE_MAX_S)
        while held_at(self.step_file) == step:
            await asyncio.sleep(POLL_S)

    async def fence(self) -> None:
        await self.pause("fence")
        await super().fence()

    async def marker_or_none(self) -> BatchMarker | None:
        await self.pause("marker")
        return await super().marker_or_none()

    async def decide(self, rows: Sequence[pa.RecordBatch], marker: BatchMarker) -> None:
        await self.pause("decide")
        await super().decide(rows, marker)

    async def end(
        self, transactions: Sequence[TaskTransaction], *, committed: bool
    ) -> list[TaskTransaction]:
        ended = []
        for each in transactions:
            await self.pause("end")
            ended += await super().end([each], committed=committed)
        return ended


class NoMarker(PausingLedger):
    async def marker_or_none(self) -> BatchMarker | None:
        await super().marker_or_none()
        return None


class MarkerReadBeforeFencing(PausingLedger):
    _read: BatchMarker | None = None

    async def fence(self) -> None:
        self._read = await super().marker_or_none()
        await super().fence()

    async def marker_or_none(self) -> BatchMarker | None:
        return self._read


class TrustingLedger(PausingLedger):
    """Does not look whether the tasks' transactions are still open."""

    async def timed_out(self, transactions: Sequence[TaskTransaction]) -> list[TaskTransaction]:
        return []


NO_BUG, TASKS_COMMIT = "", "tasks_commit_themselves"
LEDGERS: dict[str, type[PausingLedger]] = {
    NO_BUG: PausingLedger,
    TASKS_COMMIT: TrustingLedger,
    "no_marker": NoMarker,
    "marker_read_before_fencing": MarkerReadBeforeFencing,
}


# The engine


def options_for(bootstrap: str) -> SinkOptions:
    return sink_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "topic": TOPIC,
            "deliveryGuarantee": "exactly-once",
            "kafka.request.timeout.ms": "5000",
        }
    )


def rows_of(numbers: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in numbers]})


class AttemptFailed(Exception):
    pass


def work(pipe: Connection, options: SinkOptions, bug: str) -> None:
    """A worker: attempts of tasks, one after the other."""
    slots = TaskSlots(QUERY_ID)
    while True:
        batch_id, numbers, fails = pipe.recv()
        slot = slots.take(batch_id)
        try:
            producer = slot.producer(options.task_producer())
            producer.init_transactions()
            producer.begin_transaction()
            half = len(numbers) // 2
            producer.send_arrow(rows_of(numbers[:half]), TOPIC).result()
            if fails:
                raise AttemptFailed
            producer.send_arrow(rows_of(numbers[half:]), TOPIC).result()
            handed = producer.hand_over_transaction()
        except Exception:  # noqa: BLE001
            slots.failed(slot)
            pipe.send(None)
            continue
        slots.handed_over(slot)
        if bug == TASKS_COMMIT:
            with Admin(bootstrap_servers=options.client["bootstrap.servers"]) as admin:
                admin.end_transactions([handed], committed=True)
        pipe.send(TaskTransaction(handed, len(numbers)))


class Driver:
    """Runs the batches that the harness has allowed so far, and ends when it is killed."""

    def __init__(self, bootstrap: str, checkpoint: Path, bug: str) -> None:
        self._options = options_for(bootstrap)
        self._checkpoint = checkpoint
        self._bug = bug
        self._workers: list[tuple[Any, Connection]] = []

    def run(self) -> None:
        batch_id = next_batch(self._checkpoint)
        while True:
            while batch_id >= allowed_batches(self._checkpoint):
                time.sleep(0.01)
            self._run_batch(batch_id)
            # Whoever is second finds the file there and ends, as Spark does.
            (self._checkpoint / str(batch_id)).touch(exist_ok=False)
            batch_id += 1

    def _run_batch(self, batch_id: int) -> None:
        start = batch_id * ROWS_PER_BATCH
        numbers = list(range(start, start + ROWS_PER_BATCH))
        random.shuffle(numbers)
        cuts = sorted(random.sample(range(1, ROWS_PER_BATCH), random.randint(1, 3)))
        parts = [numbers[a:b] for a, b in zip([0, *cuts], [*cuts, ROWS_PER_BATCH], strict=True)]
        rows, tasks = [], []
        for part in parts:
            if random.random() < 0.3:
                rows.append(rows_of(part))
            else:
                tasks.append(self._task(batch_id, part))
        asyncio.run(self._commit(batch_id, rows, tasks))

    def _task(self, batch_id: int, numbers: list[int]) -> TaskTransaction:
        """The attempt that survives; perhaps others fail, or write the same and lose."""
        for _ in range(100):
            fate = random.random()
            answer = self._attempt(batch_id, numbers, fails=fate < 0.15)
            if answer is not None and fate > 0.3:
                return answer
        raise AttemptFailed(f"batch {batch_id}")

    def _attempt(self, batch_id: int, numbers: list[int], *, fails: bool) -> TaskTransaction | None:
        if len(self._workers) < WORKERS:
            self._start_worker()
        worker = random.choice(self._workers)
        process, pipe = worker
        try:
            pipe.send((batch_id, numbers, fails))
            answer = pipe.recv()
        except (EOFError, OSError):
            process.kill()
            self._workers.remove(worker)
            return None
        assert answer is None or isinstance(answer, TaskTransaction)
        return answer

    def _start_worker(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        process = context.Process(target=work, args=(theirs, self._options, self._bug), daemon=True)
        process.start()
        theirs.close()
        self._workers.append((process, ours))

    async def _commit(self, batch_id: int, rows: list[Any], tasks: list[TaskTransaction]) -> None:
        ledger = LEDGERS[self._bug](self._options, QUERY_ID)
        ledger.step_file = self._checkpoint.with_name(f"step-of-{os.getpid()}")
        try:
            await BatchCommit(ledger, QUERY_ID, batch_id).commit(rows, tasks)
            await ledger.pause("done")
        finally:
            await ledger.close()


def held_at(step_file: Path) -> str | None:
    """The step before which the driver has to stay."""
    try:
        return step_file.with_suffix(".held").read_text()
    except FileNotFoundError:
        return None


def next_batch(checkpoint: Path) -> int:
    return max((int(path.name) for path in checkpoint.iterdir()), default=-1) + 1


def allowed_batches(checkpoint: Path) -> int:
    """How many may be begun. It never shrinks."""
    return int(checkpoint.with_name("allowed").read_text())


# The harness


class WrongRows(AssertionError):
    """Rows are missing, or there twice."""


class SinkKillHarness:
    """One run: start drivers, kill, check."""

    def __init__(
        self,
        directory: Path,
        *,
        batches: int,
        kills: int,
        seed: int,
        bug: str = NO_BUG,
        victims: Sequence[str] = VICTIMS,
        zombie_steps: tuple[str, str] | None = None,
        broker: Broker | None = None,
    ) -> None:
        """`batches` is how many there are at least. `zombie_steps`: where a driver is stopped, and
        where the next one is when it is woken."""
        self.batches = batches
        self.killed: Counter[str] = Counter()
        self.drivers_count = 0
        self._kills_left = [victims[number % len(victims)] for number in range(kills)]
        self._bug = bug
        self._zombie_steps = zombie_steps
        self._random = random.Random(seed)
        self._directory = directory
        self._checkpoint = directory / "checkpoint"
        self._checkpoint.mkdir()
        if broker is None:
            broker = BrokerProcess(directory / "broker", {"offsets.topic.replication.factor": "1"})
            broker.start()
        self._broker = broker
        self._driver: subprocess.Popen[bytes] | None = None
        self._zombies: list[subprocess.Popen[bytes]] = []

    @property
    def is_done(self) -> bool:
        return not self._kills_left and next_batch(self._checkpoint) == self.batches

    def close(self) -> None:
        for process in [*self._zombies, self._driver]:
            if process is not None:
                _kill_group(process)
        self._broker.kill()

    def run(self) -> None:
        with Admin(bootstrap_servers=self._broker.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].get()
        give_up_at = time.monotonic() + RUN_TIMEOUT_S
        while not self.is_done:
            assert time.monotonic() < give_up_at, f"no end\n{self._last_words()}"
            self._allow_more()
            if self._driver is None or self._driver.poll() is not None:
                self._start_driver()
            due_batch = min(next_batch(self._checkpoint) + 1, self.batches)
            wait_until = time.monotonic() + 20
            while (
                next_batch(self._checkpoint) < due_batch
                and self._driver is not None
                and self._driver.poll() is None
                and time.monotonic() < wait_until
            ):
                time.sleep(0.01)
            time.sleep(self._random.random() * 0.3)
            if self._kills_left:
                self._kill(self._kills_left[0])
        for process in [*self._zombies, self._driver]:
            if process is not None:
                _kill_group(process)
        self._check()

    def _allow_more(self) -> None:
        """While there are kills to come, drivers must have something to do."""
        allowed = self.batches
        if self._kills_left:
            allowed = next_batch(self._checkpoint) + 3
            self.batches = max(self.batches, allowed)
        file = self._checkpoint.with_name("allowed")
        if not file.exists() or int(file.read_text()) < allowed:
            file.with_name("allowed.new").write_text(str(allowed))
            file.with_name("allowed.new").replace(file)

    def _start_driver(self) -> None:
        self.drivers_count += 1
        command = [sys.executable, "-m", "tests.support.sink_kill_harness", "--driver"]
        command += [self._broker.bootstrap, str(self._checkpoint), self._bug]
        with (self._directory / "drivers.log").open("ab") as output:
            self._driver = subprocess.Popen(
                dies_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _kill(self, victim: str) -> None:
        driver = self._driver
        if driver is None or driver.poll() is not None:
            return
        if victim == "driver":
            _kill_group(driver)
        elif victim == "worker":
            if not self._kill_worker(driver):
                return
        elif victim == "zombie":
            stop_at, wake_at = self._zombie_steps or self._random.choices(STEPS, k=2)
            if not self._hold_before(driver, stop_at):
                return
            os.killpg(driver.pid, signal.SIGSTOP)
            self._release(driver)
            self._zombies.append(driver)
            self._start_driver()
            assert self._driver is not None
            self._hold_before(self._driver, wake_at)
            os.killpg(driver.pid, signal.SIGCONT)
            self._wait_for_step(driver, STEPS[-1])  # it gets as far as it can
            self._release(self._driver)
        else:
            self._broker.kill()
            self._broker.start()
        self.killed[victim] += 1
        self._kills_left.pop(0)

    def _hold_before(self, driver: subprocess.Popen[bytes], step: str) -> bool:
        """Whether it has come there."""
        self._step_file(driver).with_suffix(".held").write_text(step)
        has_come = self._wait_for_step(driver, step)
        if not has_come:
            self._release(driver)
        return has_come

    def _release(self, driver: subprocess.Popen[bytes]) -> None:
        self._step_file(driver).with_suffix(".held").unlink(missing_ok=True)

    def _wait_for_step(self, driver: subprocess.Popen[bytes], step: str) -> bool:
        file = self._step_file(driver)
        give_up_at = time.monotonic() + STEP_TIMEOUT_S
        while driver.poll() is None and time.monotonic() < give_up_at:
            if file.exists() and file.read_text() == step:
                return True
            time.sleep(POLL_S)
        return False

    def _step_file(self, driver: subprocess.Popen[bytes]) -> Path:
        return self._directory / f"step-of-{driver.pid}"

    def _kill_worker(self, driver: subprocess.Popen[bytes]) -> bool:
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            workers = psutil.Process(driver.pid).children(recursive=True)
            if workers:
                self._random.choice(workers).kill()
                return True
        return False

    def _last_words(self) -> str:
        return (self._directory / "drivers.log").read_text(errors="replace")[-3000:]

    def _check(self) -> None:
        self._end_leftovers()
        found: Counter[int] = Counter()
        options = {
            "bootstrap.servers": self._broker.bootstrap,
            "isolation.level": "read_committed",
        }
        with BlockingCluster(options) as cluster:
            for number in range(PARTITIONS):
                partition = TopicPartition(TOPIC, number)
                end = cluster.latest_offsets([partition])[partition]
                for batch in RangeReader(cluster).fetch_columns(partition, 0, end):
                    found.update(int(value) for value in batch.column("value").to_pylist())
        wanted = range(self.batches * ROWS_PER_BATCH)
        missing = [number for number in wanted if not found[number]]
        doubled = [number for number, count in found.items() if count > 1]
        if missing or doubled:
            raise WrongRows(
                f"{len(missing)} rows are missing, such as {missing[:5]}; {len(doubled)} are there "
                f"twice, such as {doubled[:5]}"
            )

    def _end_leftovers(self) -> None:
        """Attempts of the last batch that lost would hold up the reader until they time out."""
        with Admin(bootstrap_servers=self._broker.bootstrap) as admin:
            give_up_at = time.monotonic() + 60
            while True:
                listed = admin.list_transactions(
                    states=["Ongoing", "PrepareCommit", "PrepareAbort"]
                )
                if not listed or time.monotonic() > give_up_at:
                    return
                prefix = task_ids_prefix(QUERY_ID)
                left = [
                    row.transactional_id
                    for row in listed
                    if row.state == "Ongoing" and row.transactional_id.startswith(prefix)
                ]
                admin.fence_producers(left)
                time.sleep(0.1)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--bug", choices=sorted(LEDGERS), default=NO_BUG)
    parser.add_argument("--driver", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.driver:
        bootstrap, checkpoint, bug = given.driver
        Driver(bootstrap, Path(checkpoint), bug).run()
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sink-kills-") as directory:
        harness = SinkKillHarness(
            Path(directory),
            batches=given.batches,
            kills=given.kills,
            seed=given.seed,
            bug=given.bug,
        )
        try:
            harness.run()
        finally:
            harness.close()
    killed = ", ".join(f"{victim} {count}" for victim, count in harness.killed.items())
    sys.stdout.write(
        f"{harness.batches} batches, seed {given.seed}: killed {killed}; {harness.drivers_count} "
        f"drivers; every row once; {time.monotonic() - started:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
