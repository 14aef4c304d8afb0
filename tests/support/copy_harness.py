"""Consume, transform, produce while broker and client are killed (-9) at random moments.

A client process (`copy_process`) copies records, a fixed number a transaction. At random points of
its progress the broker or the client, or one right after the other, is killed and started again; a
client that has stopped getting on (librdkafka can) is killed as well.

What must hold in the end: a read_committed reader finds in each partition of the target exactly
the records of the source, transformed, once, in order; the committed offsets are the ends of the
source; no transaction is left open.

    python -m tests.support.copy_harness --records 100000 --kills 20 [--seed 7]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.broker_process import BrokerProcess, dies_with_us
from tests.support.copy_process import FAILED, CopyOptions, transformed
from tests.support.raw_batch import now_ms
from tests.support.raw_client import LATEST, RawClient, create_topic, list_offset

ROOT = Path(__file__).resolve().parents[2]
SOURCE, TARGET = "source", "target"
PARTITIONS = 4
STUCK_AFTER_S = 12.0
READ_WITHIN_S = 60.0
DELAY_MAX_S = 0.08  # about two transactions
BROKER_OVERRIDES = {
    # The coordinators' topics are compacted all the time.
    "offsets.topic.segment.bytes": "16384",
    "transaction.state.log.segment.bytes": "16384",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True)
class Kill:
    """What to kill once so many records are copied, and how long after that."""

    at: int
    broker_after_s: float | None
    client_after_s: float | None

    def steps(self) -> list[tuple[float, str]]:
        steps = [(self.broker_after_s, "broker"), (self.client_after_s, "client")]
        return sorted((after, what) for after, what in steps if after is not None)


def planned(dice: random.Random, count: int, kills: int) -> list[Kill]:
    """Each of both `kills` times, at points spread over the whole run; some of them together."""

    def moment() -> float:
        return dice.uniform(0, DELAY_MAX_S)

    together = kills // 4
    plan: list[tuple[float | None, float | None]] = []
    plan += [(moment(), moment()) for _ in range(together)]
    plan += [(moment(), None) for _ in range(kills - together)]
    plan += [(None, moment()) for _ in range(kills - together)]
    dice.shuffle(plan)
    points = sorted(dice.randrange(count * 19 // 20) for _ in plan)
    return [Kill(at, *delays) for at, delays in zip(points, plan, strict=True)]


class CopyHarness:
    def __init__(
        self, directory: Path, *, seed: int, records: int, per_transaction: int, kills: int
    ) -> None:
        self._dice = random.Random(seed)
        self.records = records // PARTITIONS * PARTITIONS
        self.kills = {"broker": 0, "client": 0}
        self.failures = 0  # clients that ended by themselves because of an error
        self.stuck = 0
        self.copy_seconds = 0.0
        self._plan = planned(self._dice, self.records, kills)
        self._broker = BrokerProcess(directory / "broker", BROKER_OVERRIDES)
        self._broker.start()
        self._errors = (directory / "client-stderr.txt").open("wb")
        self._options = CopyOptions(
            bootstrap=self.bootstrap,
            source=SOURCE,
            target=TARGET,
            partitions=PARTITIONS,
            count=self.records,
            per_transaction=per_transaction,
        )
        self._client: subprocess.Popen[bytes] | None = None
        self._copied = 0
        self._moved_at = time.monotonic()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def close(self) -> None:
        self._kill_client()
        self._broker.kill()
        self._errors.close()

    def run(self) -> None:
        self._feed()
        began = time.monotonic()
        self._start_client()
        for kill in self._plan:
            self._wait_until(kill.at)
            self._carry_out(kill)
        self._wait_until(self.records)
        self.copy_seconds = time.monotonic() - began
        self._kill_client()
        self.check()

    # The source

    def values(self, partition: int) -> Iterator[bytes]:
        for number in range(self.records // PARTITIONS):
            yield b"%d/%07d" % (partition, number)

    def _feed(self) -> None:
        with RawClient(self.bootstrap) as client:
            for topic in (SOURCE, TARGET):
                create_topic(client, topic, PARTITIONS)
        feed = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "queue.buffering.max.messages": self.records + 1,
            }
        )
        for partition in range(PARTITIONS):
            for value in self.values(partition):
                feed.produce(SOURCE, value, partition=partition)
        assert feed.flush(READ_WITHIN_S) == 0

    # Kills

    def _carry_out(self, kill: Kill) -> None:
        slept = 0.0
        for after_s, what in kill.steps():
            time.sleep(after_s - slept)
            slept = after_s
            self.kills[what] += 1
            if what == "broker":
                self._broker.kill()
            else:
                self._kill_client()
        if not self._broker.is_alive():
            self._broker.start()
        self._moved_at = time.monotonic()

    def _start_client(self) -> None:
        command = [sys.executable, "-m", "tests.support.copy_process"]
        self._client = subprocess.Popen(
            dies_with_us([*command, json.dumps(asdict(self._options))]),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        threading.Thread(target=self._follow, args=(self._client,), daemon=True).start()
        self._moved_at = time.monotonic()

    def _follow(self, client: subprocess.Popen[bytes]) -> None:
        assert client.stdout is not None
        with client.stdout as lines:
            for line in lines:
                self._copied = max(self._copied, int(line))
                self._moved_at = time.monotonic()

    def _kill_client(self) -> None:
        if self._client is not None:
            self._client.kill()
            self._client.wait()

    def _wait_until(self, copied: int) -> None:
        """Keeps a client going until so many records are copied."""
        while self._copied < copied:
            assert self._client is not None
            ended = self._client.poll()
            if ended is not None:
                assert ended in (0, FAILED, -9), f"the client ended with {ended}"
                self.failures += ended == FAILED
                self._start_client()
            elif time.monotonic() - self._moved_at > STUCK_AFTER_S:
                self.stuck += 1
                self._kill_client()
            assert self._broker.is_alive(), self._broker.log_text()[-2000:]
            time.sleep(0.001)

    # What came of it

    def check(self) -> None:
        for partition in range(PARTITIONS):
            found = self.read(partition)
            wanted = [transformed(value) for value in self.values(partition)]
            assert len(found) >= len(wanted), f"{len(wanted) - len(found)} records are lost"
            assert len(found) == len(set(found)), "records were written twice"
            assert found == wanted, "records are not in the order of the source"
        self._check_offsets()

    def read(self, partition: int) -> list[bytes]:
        """Everything to the end of the log; an open transaction would not let it get there."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        with RawClient(self.bootstrap) as client:
            end = list_offset(client, TARGET, LATEST, partition).offset
        values: list[bytes] = []
        deadline = time.monotonic() + READ_WITHIN_S
        try:
            consumer.assign([TopicPartition(TARGET, partition, 0)])
            while time.monotonic() < deadline:
                for message in consumer.consume(5000, 0.05):
                    error = message.error()
                    if error is None:
                        values.append(message.value() or b"")
                    elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= end:
                        return values
        finally:
            consumer.close()
        raise AssertionError(f"offset {end} is not reached: a transaction is open")

    def _check_offsets(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "copying"})
        places = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
        found = [each.offset for each in consumer.committed(places, READ_WITHIN_S)]
        consumer.close()
        assert found == [self.records // PARTITIONS] * PARTITIONS, f"committed offsets {found}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--per-transaction", type=int, default=750)
    parser.add_argument("--kills", type=int, default=20, help="of the broker and of the client")
    parser.add_argument("--seed", type=int, default=now_ms() % 100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copy-harness-") as directory:
        harness = CopyHarness(
            Path(directory),
            seed=arguments.seed,
            records=arguments.records,
            per_transaction=arguments.per_transaction,
            kills=arguments.kills,
        )
        try:
            harness.run()
        finally:
            harness.close()
    sys.stdout.write(
        f"{harness.records} records, seed {arguments.seed}: broker killed "
        f"{harness.kills['broker']} times, client {harness.kills['client']} times, "
        f"{harness.failures} clients gave up, {harness.stuck} were stuck; copied in "
        f"{harness.copy_seconds:.0f} s, all well\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
