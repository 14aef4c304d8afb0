"""A windowed pipeline whose driver, Python workers, executors and broker are killed (-9).

Sales of some shops go into a topic, up to 30 s out of order; `tidelog pipeline run` counts and sums
them by shop and minute into another topic. Whenever the pipeline ends before it is done, it is
started again, as a supervisor would. What must hold at the end: for every shop and minute, a reader
with read_committed finds the answer that a batch over all events gives, and finds it once.

Executors are processes of their own only in a cluster, which `--executors` has Spark start here.
`--bug` plants one into the sink (tests/support/planted_sink_bug), for the harness to find.

    python -m tests.support.pipeline_kill_harness [--events 1000000] [--kills 20] [--seed 7]
        [--executors] [--by-tasks] [--kafka 3.9.2] [--bug NAME]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa

from tests.interop.apache_kafka import ApacheKafkaBroker
from tests.support.broker_process import BrokerProcess, dies_with_us
from tests.support.planted_sink_bug import BUGS, planted
from tests.support.raw_client import RawClient, create_topic
from tests.support.sink_kill_harness import Broker
from tidelog.client.blocking.cluster import BlockingCluster
from tidelog.client.blocking.producer import Producer
from tidelog.client.columns.range_reader import RangeReader
from tidelog.types import TopicPartition

KILL_WITHIN_S = 0.5
PARTITIONS = 4
SHOPS = 20
EVENTS_PER_MINUTE = 5_000
DISORDER_MS = 30_000
OPENING_MS = 1_767_600_000_000
MINUTE_MS = 60_000
BATCHES_MIN = 25
VICTIMS = ("driver", "worker", "broker")
VICTIMS_IN_A_CLUSTER = ("driver", "worker", "executor", "broker")
BATCHES_BETWEEN_KILLS = 2
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,512]"
RUNS_MAX = 40
RUN_TIMEOUT_S = 600.0

DECLARATION = """\
[pipeline]
name = "sales"
bootstrap = "{bootstrap}"
trigger = "available-now"

[spark]
master = "{master}"
"spark.executor.memory" = "512m"
"spark.sql.shuffle.partitions" = 2
"spark.sql.session.timeZone" = "UTC"

[source.sales]
topic = "sales"
schema = "shop string not null, cents bigint, at bigint"
options = {{ maxOffsetsPerTrigger = {batch_rows} }}

[view.timed]
sql = "select shop, cents, timestamp_millis(at) as at from sales"
watermark = {{ column = "at", delay = "2 minutes" }}

[view.totals]
sql = \"\"\"
  select unix_millis(window.start) as start, shop, count(*) as sales, sum(cents) as cents
  from timed
  group by window(at, '1 minute'), shop
\"\"\"

[sink.totals]
from = "totals"
topic = "totals"
key = "concat(shop, '@', start)"
options = {{ {sink_options} }}
"""

Answer = dict[tuple[str, int], tuple[int, int]]  # (shop, minute): (sales, cents)


class Sale(NamedTuple):
    shop: str
    cents: int
    at: int


def sales(events: int, chance: random.Random) -> Iterator[Sale]:
    for number in range(events):
        at = OPENING_MS + number * MINUTE_MS // EVENTS_PER_MINUTE - chance.randrange(DISORDER_MS)
        yield Sale(f"shop-{chance.randrange(SHOPS)}", chance.randrange(1, 100_000), at)


class WindowTwice(AssertionError):
    pass


class PipelineKillHarness:
    """One run: fill, run the pipeline and kill, check."""

    def __init__(
        self,
        directory: Path,
        *,
        events: int,
        kills: int,
        seed: int,
        executors: bool = False,
        by_tasks: bool = False,
        bug: str = "",
        broker: Broker | None = None,
    ) -> None:
        """`by_tasks`: no rows go through the driver."""
        victims: tuple[str, ...] = VICTIMS_IN_A_CLUSTER if executors else VICTIMS
        if bug:
            victims = ("driver",)
        self.events = events
        self.kills_left = [victims[number % len(victims)] for number in range(kills)]
        self.killed: Counter[str] = Counter()
        self.runs = 0
        self.windows = 0
        self._batches = max(BATCHES_MIN, (kills + 2) * (BATCHES_BETWEEN_KILLS + 1))
        self._master = CLUSTER if executors else LOCAL
        self._sink_options = "driverBytesPerTask = 0" if by_tasks else ""
        self._bug = bug
        self._directory = directory
        self._random = random.Random(seed)
        if broker is None:
            broker = BrokerProcess(directory / "broker", {"offsets.topic.replication.factor": "1"})
            broker.start()
        self._broker = broker
        self._driver: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        self._kill_driver()
        self._broker.kill()

    def run(self) -> None:
        self._fill()
        declaration = DECLARATION.format(
            bootstrap=self._broker.bootstrap,
            batch_rows=max(1, self.events // self._batches),
            master=self._master,
            sink_options=self._sink_options,
        )
        (self._directory / "pipeline.toml").write_text(declaration)
        while self._run_once() != 0:
            assert "a bug in tidelog" not in self._last_words(), self._last_words()
            assert self.runs < RUNS_MAX, f"no end after {self.runs} runs\n{self._last_words()}"
        self._check()
        assert not self.kills_left, f"the pipeline ended before {self.kills_left} were killed"

    def _fill(self) -> None:
        with RawClient(self._broker.bootstrap) as client:
            create_topic(client, "sales", PARTITIONS, {})
            create_topic(client, "totals", 1, {})
        rows = [json.dumps(sale._asdict()).encode() for sale in sales(self.events, self._random)]
        # one a partition, so late that every window before it closes
        closing = Sale("closing", 0, OPENING_MS + self.events * MINUTE_MS + 10 * MINUTE_MS)
        rows += [json.dumps(closing._asdict()).encode()] * PARTITIONS
        partitions = pa.array([number % PARTITIONS for number in range(len(rows))], pa.int32())
        batch = pa.RecordBatch.from_arrays(
            [pa.array(rows, pa.binary()), partitions], ["value", "partition"]
        )
        with Producer({"bootstrap.servers": self._broker.bootstrap}) as producer:
            producer.send_arrow(batch, "sales").result()

    def _cluster(self) -> BlockingCluster:
        return BlockingCluster(
            {"bootstrap.servers": self._broker.bootstrap, "isolation.level": "read_committed"}
        )

    def _run_once(self) -> int:
        """One run of the pipeline to its end, whatever that is; kills when it is time to."""
        self.runs += 1
        command = [str(Path(sys.executable).parent / "tidelog"), "pipeline", "run"]
        with (self._directory / "pipeline.log").open("ab") as output:
            self._driver = subprocess.Popen(
                dies_with_us([*command, str(self._directory)]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    **planted(self._bug, self._directory),
                },
            )
        is_time = self._rows_are_out() if self._bug else self._batches_are_done()
        give_up_at = time.monotonic() + RUN_TIMEOUT_S
        while self._driver.poll() is None:
            assert time.monotonic() < give_up_at, f"the pipeline hangs\n{self._last_words()}"
            is_due = next(is_time) if self.kills_left else False
            if is_due:
                self._kill(self.kills_left[0])
            time.sleep(0.05)
        return self._driver.returncode

    def _batches_are_done(self) -> Iterator[bool]:
        """As many as are to come between two kills, and a random time after them."""
        began_with = self._batches_committed()
        while True:
            is_time = self._batches_committed() >= began_with + BATCHES_BETWEEN_KILLS
            if is_time:
                time.sleep(self._random.random() * KILL_WITHIN_S)
            yield is_time
            if is_time:
                began_with = self._batches_committed()

    def _rows_are_out(self) -> Iterator[bool]:
        """Readers see them, and Spark does not know it yet (`planted_sink_bug.slow_commits`)."""
        before = self._visible_end()
        while True:
            yield self._visible_end() > before

    def _visible_end(self) -> int:
        with self._cluster() as cluster:
            return sum(cluster.latest_offsets([TopicPartition("totals", 0)]).values())

    def _batches_committed(self) -> int:
        commits = self._directory / "checkpoint" / "totals" / "commits"
        return sum(1 for path in commits.glob("*") if path.name.isdigit())

    def _kill(self, victim: str) -> None:
        if victim == "driver":
            self._kill_driver()
        elif victim in ("worker", "executor"):
            if not self._kill_one(_is_worker if victim == "worker" else _is_executor):
                return
        else:
            self._broker.kill()
            self._broker.start()
        self.killed[victim] += 1
        self.kills_left.pop(0)

    def _kill_driver(self) -> None:
        """The command, its JVM and their workers, all at once."""
        if self._driver is None or self._driver.poll() is not None:
            return
        command = psutil.Process(self._driver.pid)
        for process in [command, *command.children(recursive=True)]:
            _kill(process)
        self._driver.wait(30)

    def _kill_one(self, is_victim: Callable[[psutil.Process], bool]) -> bool:
        assert self._driver is not None
        victims = [
            process
            for process in psutil.Process(self._driver.pid).children(recursive=True)
            if is_victim(process)
        ]
        if not victims:
            return False
        _kill(self._random.choice(victims))
        return True

    def _last_words(self) -> str:
        return (self._directory / "pipeline.log").read_text(errors="replace")[-3000:]

    def _check(self) -> None:
        expected = self._batch_answer()
        found: Answer = {}
        for value in self._values("totals", 1):
            row = json.loads(value)
            window, totals = (row["shop"], row["start"]), (row["sales"], row["cents"])
            if window in found:
                raise WindowTwice(f"{window} is there as {found[window]} and as {totals}")
            found[window] = totals
        self.windows = len(found)
        missing = expected.keys() - found.keys()
        assert not missing, f"{len(missing)} windows are missing, such as {sorted(missing)[:3]}"
        invented = found.keys() - expected.keys()
        assert not invented, f"{len(invented)} windows too many, such as {sorted(invented)[:3]}"
        wrong = [window for window in expected if expected[window] != found[window]]
        assert not wrong, f"{len(wrong)} windows are wrong, such as {wrong[:3]}"

    def _batch_answer(self) -> Answer:
        """Over the topic as it is, without Spark."""
        answer: Answer = {}
        count = 0
        for value in self._values("sales", PARTITIONS):
            row = json.loads(value)
            if row["shop"] == "closing":
                continue
            count += 1
            window = row["shop"], row["at"] // MINUTE_MS * MINUTE_MS
            sold, cents = answer.get(window, (0, 0))
            answer[window] = sold + 1, cents + row["cents"]
        assert count == self.events, f"{count} events are in the topic, {self.events} were sent"
        return answer

    def _values(self, topic: str, partitions: int) -> Iterator[bytes]:
        with self._cluster() as cluster:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            for partition, end in cluster.latest_offsets(wanted).items():
                for batch in RangeReader(cluster).fetch_columns(partition, 0, end):
                    yield from batch.column(1).to_pylist()


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def _is_worker(process: psutil.Process) -> bool:
    """A process that works for a task: forked by Spark's daemon."""
    try:
        parent = process.parent()
        return (
            parent is not None
            and "pyspark.worker" in process.cmdline()
            and "pyspark.daemon" in " ".join(parent.cmdline())
        )
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--executors", action="store_true")
    parser.add_argument("--by-tasks", action="store_true")
    parser.add_argument("--kafka", default="", help="a version of Apache Kafka, else tidelog")
    parser.add_argument("--bug", default="", choices=["", *BUGS])
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pipeline-kills-") as directory:
        broker = ApacheKafkaBroker(given.kafka, Path(directory)) if given.kafka else None
        harness = PipelineKillHarness(
            Path(directory),
            events=given.events,
            kills=given.kills,
            seed=given.seed,
            executors=given.executors,
            by_tasks=given.by_tasks,
            bug=given.bug,
            broker=broker,
        )
        try:
            harness.run()
        finally:
            harness.close()
    killed = ", ".join(f"{victim} {count}" for victim, count in harness.killed.items())
    sys.stdout.write(
        f"{harness.events} events, seed {given.seed}: killed {killed}; {harness.runs} runs, "
        f"{harness.windows} windows, each once and equal to the batch answer; "
        f"{time.monotonic() - started:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
