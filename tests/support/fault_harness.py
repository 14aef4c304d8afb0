"""Three brokers over a real ZooKeeper, real clients, and one random fault after another.

Replication 3, min.insync.replicas 2, no unclean elections: nothing that was acknowledged may be
lost, doubled or moved, whatever is killed, paused or cut off (`cluster_faults`). Clients write down
what they did and saw (`fault_workload`), the checker reads it (`history_check`), and when all
replicas are in sync again and stopped their files must be equal (`replica_comparison`).

    python -m tests.support.fault_harness --faults 100 --records 500000 --minutes 10
        [--transactions] [--sasl-ssl] [--embedded-zookeeper] [--seed N] [--keep DIR]

Two kinds of runs are for what a plain one seldom comes by. Every replica must be in sync again
before the next fault comes:

    --large-batches   40 partitions get a batch of 900 KB each while a broker is paused, and nothing
                      else. An answer to a follower has room for a few of them. All must be acked
                      before the next burst: no other append reminds a leader of them, and nobody
                      leaves an in-sync set in that time.
    --deletions       a broker loses its disk, and while it is built anew records are deleted, up to
                      offsets inside of batches
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.support.broker_process import TIDELOG
from tests.support.cluster import SESSION_TIMEOUT_MS
from tests.support.cluster_faults import FaultDice
from tests.support.cluster_history import History
from tests.support.cluster_security import secure
from tests.support.fault_workload import (
    PADDING_BYTES,
    Bursts,
    Deleter,
    Due,
    Follower,
    Pace,
    PlainProducer,
    TransactionalProducer,
    Worker,
    read_to_the_end,
)
from tests.support.faulty_cluster import FaultyCluster
from tests.support.history_check import Anomaly, check
from tests.support.raw_batch import now_ms, read_batches
from tests.support.replica_comparison import differences

TOPIC = "faults"
SURPLUS = 1.2  # more is sent than must be acked
LONGEST_SHARE = 0.75  # of the time between two faults
PEACE_WITHIN_S = 60.0
READ_WITHIN_S = 120.0
WARM_UP_S = 2.0
REBUILT_UNDER_DELETIONS_S = 1.0
POLL_S = 0.05
OVERRIDES = {
    "log.cleaner.enable": "false",  # each replica would be compacted in its own time
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "5",
    "controlled.shutdown.retry.backoff.ms": "500",
}
COMPLAINT = re.compile(r"Traceback|a bug in tidelog|AssertionError")

Say = Callable[[str], object]


class Workload(NamedTuple):
    """What is written, and what goes wrong meanwhile if nobody says otherwise."""

    partitions: int = 6
    producers: int = 3
    padding_bytes: int = PADDING_BYTES
    linger_ms: int = 5  # for records to share a batch
    burst: int = 0  # records that a producer sends in a fault, and no others; 0: all the time
    deletes: bool = False
    only: tuple[str, ...] = ()  # kinds of faults; all if none are named
    shortest_s: float = 0.0  # a fault; it may last LONGEST_SHARE
    longest_s: float = 60.0
    overrides: tuple[tuple[str, str], ...] = ()

    @property
    def settles(self) -> bool:
        """Whether all must be well after each fault."""
        return self.burst > 0 or self.deletes


PLAIN = Workload()
LARGE_BATCHES = Workload(
    partitions=40,
    producers=1,
    padding_bytes=900_000,
    burst=40,
    only=("paused",),
    shortest_s=0.5,
    longest_s=0.8 * SESSION_TIMEOUT_MS / 1000,  # a new session would begin with all partitions
    overrides=(
        # Two of them; a producer has five under way to a broker.
        ("replica.fetch.response.max.bytes", "2000000"),
        ("replica.lag.time.max.ms", "60000"),
    ),
)
# It comes back after its session has ended: others lead by then, and it is in no in-sync set.
DELETIONS = Workload(
    linger_ms=300,
    deletes=True,
    only=("rebuilt",),
    shortest_s=1.5 * SESSION_TIMEOUT_MS / 1000,
)


class FaultHarness:
    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        records: int,
        minutes: float,
        transactions: bool = False,
        workload: Workload = PLAIN,
        only: Collection[str] = (),
        shortest_s: float = 0.0,
        peace_within_s: float = PEACE_WITHIN_S,
        program: Sequence[str] = TIDELOG,
        overrides: Mapping[str, str] | None = None,
        secured: bool = False,
        embedded_zookeeper: bool = False,
        say: Say = lambda line: None,
    ) -> None:
        self._dice = random.Random(seed)
        self._records = records
        self._duration_s = minutes * 60
        self._transactions = transactions
        self._workload = workload
        self._bursts = Bursts(workload.burst)
        self._only = only or workload.only
        self._shortest_s = max(shortest_s, workload.shortest_s)
        self._peace_within_s = peace_within_s
        self._say = say
        self.history = History()
        self.kinds: Counter[str] = Counter()
        self.full_isr_after_s = 0.0
        self.silences_s: dict[str, float] = {}  # the longest in which a partition had no ack
        settings = {**OVERRIDES, **dict(workload.overrides), **(overrides or {})}
        self.cluster = FaultyCluster(
            directory, overrides=settings, embedded_zookeeper=embedded_zookeeper
        )
        if secured:
            secure(self.cluster, ("CLIENTS", "INTERNAL"), directory / "certificates")
        for broker in self.cluster.brokers.values():
            broker.program = program
        self._workers: list[Worker] = []
        self._writers: list[PlainProducer | TransactionalProducer] = []
        self._deleter: Deleter | None = None

    @property
    def deletions(self) -> int:
        return 0 if self._deleter is None else self._deleter.answered

    def close(self) -> None:
        for worker in (*self._writers, *self._workers):
            worker.stopping.set()
        self.cluster.close()

    def run(self, faults: int) -> None:
        """AssertionError if the cluster has not kept its word."""
        self.cluster.start()
        self.cluster.create_topic(TOPIC, self._workload.partitions)
        self._start_clients()
        time.sleep(WARM_UP_S)
        self._go_through(faults)
        self._make_peace()
        self._require_well()

    def _start_clients(self) -> None:
        keys, workload = self.cluster.client_keys, self._workload
        partitions, producers = workload.partitions, workload.producers
        pace: Due = self._bursts
        if not workload.burst:
            pace = Pace(self._records * SURPLUS / producers / self._duration_s)
        kind = TransactionalProducer if self._transactions else PlainProducer
        self._writers = [
            kind(keys, TOPIC, partitions, number, self.history, pace, workload.padding_bytes)
            for number in range(producers)
        ]
        for writer in self._writers:
            writer.settings["linger.ms"] = workload.linger_ms
        self._workers = [Follower(keys, TOPIC, partitions, "follower", self.history)]
        if workload.deletes:
            seed = self._dice.random()
            self._deleter = Deleter(keys, TOPIC, partitions, self.history, seed)
            self._workers.append(self._deleter)
        for worker in (*self._workers, *self._writers):
            worker.start()

    # Faults

    def _go_through(self, faults: int) -> None:
        dice = FaultDice(self.cluster, self._dice, self._only)
        slot_s = self._duration_s / faults
        started = time.monotonic()
        for number in range(faults):
            kind, fault = dice.roll()
            longest_s = min(slot_s * LONGEST_SHARE, self._workload.longest_s)
            lasts_s = self._dice.uniform(self._shortest_s, longest_s)
            began = time.monotonic()
            fault.begin()
            self._bursts.burst()
            time.sleep(lasts_s)
            fault.end()
            took_s = time.monotonic() - began
            self.kinds[kind] += 1
            if self._workload.settles:
                self._require_settled(fault.name)
            if number + 1 < faults:
                time.sleep(max(started + (number + 1) * slot_s - time.monotonic(), 0))
            self._require_alive(fault.name)
            for worker in (*self._writers, *self._workers):
                worker.require_well()
            silence_s = self.silence_s(began)
            self.silences_s[kind] = max(self.silences_s.get(kind, 0.0), silence_s)
            self._say(
                f"{number + 1:4} at {began - started:6.1f} s: {fault.name} for {took_s:.1f} s; "
                f"longest time without an ack {silence_s:.1f} s, {len(self.history.acks)} acked"
            )

    def _require_settled(self, after: str) -> None:
        """Nothing else has to happen for all to be well."""
        if self._deleter is not None:
            time.sleep(REBUILT_UNDER_DELETIONS_S)
            self._deleter.is_resting.set()
        deadline = time.monotonic() + self._peace_within_s
        due = self._bursts.due() * self._workload.producers
        while len(self.history.acks) < due and time.monotonic() < deadline:
            time.sleep(POLL_S)
        acked = len(self.history.acks)
        assert acked >= due, f"only {acked} of {due} records are acked after {after}"
        self._wait_for_full_isr(after)
        if self._deleter is not None:
            self._deleter.is_resting.clear()

    def _wait_for_full_isr(self, after: str) -> None:
        topics = [TOPIC, *(["__transaction_state"] if self._transactions else [])]
        try:
            self.cluster.wait_for_full_isr(topics, within_s=self._peace_within_s)
        except AssertionError as failure:
            raise AssertionError(f"replicas stay out of sync after {after}") from failure

    def _require_alive(self, after: str) -> None:
        dead = [number for number, broker in self.cluster.brokers.items() if not broker.is_alive()]
        logs = "\n".join(self.cluster.brokers[number].log_text()[-3000:] for number in dead)
        assert not dead, f"brokers {dead} have ended by themselves after {after}\n{logs}"

    def silence_s(self, since: float) -> float:
        """The longest time in which one of the partitions had no ack."""
        longest = 0.0
        now = time.monotonic()
        for partition in range(self._workload.partitions):
            times = self.history.ack_times.get(partition, [])
            late = [since]
            for at in reversed(times):
                if at <= since:
                    break
                late.append(at)
            moments = [*sorted(late), now]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(moments)))
        return longest

    # What must hold

    def _make_peace(self) -> None:
        began = time.monotonic()
        self._wait_for_full_isr("all faults")
        self.full_isr_after_s = time.monotonic() - began
        if not self._workload.burst:
            self._wait_for_records()
        for writer in self._writers:
            writer.stop()
        if self._deleter is not None:
            self._deleter.stop()
        partitions = self._workload.partitions
        reads = read_to_the_end(self.cluster.client_keys, TOPIC, partitions, READ_WITHIN_S)
        self.history.polls += reads
        for worker in self._workers:
            worker.stop()

    def _wait_for_records(self) -> None:
        """What the faults have cost is made up for, if it can be."""
        deadline = time.monotonic() + PEACE_WITHIN_S
        while len(self.history.acks) < self._records and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _require_well(self) -> None:
        anomalies = check(self.history)
        assert not anomalies, f"{describe(anomalies)}\nproducers: {self._producers()}"
        self.cluster.wait_for_full_isr([TOPIC], within_s=PEACE_WITHIN_S)
        # One after the other would let the last ones write on alone.
        for broker in self.cluster.brokers.values():
            broker.kill()
        data = {number: b.data_directory for number, b in self.cluster.brokers.items()}
        starts = {f"{TOPIC}-{partition}": n for partition, n in self.history.deleted.items()}
        unequal = differences(data, starts)
        assert not unequal, "replicas differ:\n" + "\n".join(unequal)
        complaints = [
            f"broker {number}: {line}"
            for number, broker in self.cluster.brokers.items()
            for line in broker.log_text().splitlines()
            if COMPLAINT.search(line)
        ]
        assert not complaints, "\n".join(complaints[:20])
        acked = len(self.history.acks)
        assert acked >= self._records, f"all well, but only {acked} records were acked"
        assert self.deletions or not self._workload.deletes, "all well, but nothing was deleted"

    def _producers(self) -> str:
        """Batches by producer id and epoch, as one broker has them. A plain producer that has gone
        to another epoch has sent again what it was not sure of, and may have doubled it itself.
        """
        data = self.cluster.brokers[1].data_directory
        batches = Counter(
            (batch.producer_id, batch.producer_epoch)
            for path in data.glob(f"{TOPIC}-*/*.log")
            for batch in read_batches(path.read_bytes())
        )
        return ", ".join(f"{i} epoch {e}: {count}" for (i, e), count in sorted(batches.items()))


def describe(anomalies: list[Anomaly]) -> str:
    kinds = Counter(anomaly.kind for anomaly in anomalies)
    lines = [f"{count} x {kind}" for kind, count in kinds.most_common()]
    for kind in kinds:
        examples = [anomaly.what for anomaly in anomalies if anomaly.kind == kind]
        lines += [f"  {kind}: {what}" for what in examples[:5]]
    return "\n".join(lines)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--records", type=int, help="to be acked; 500,000, or all of the bursts")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--sasl-ssl", action="store_true", help="on all listeners")
    parser.add_argument(
        "--embedded-zookeeper", action="store_true", help="tidelog zookeeper instead of Java's"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--large-batches", action="store_true")
    kinds.add_argument("--deletions", action="store_true")
    parser.add_argument("--seed", type=int, default=now_ms() % 100_000)
    parser.add_argument("--only", action="append", default=[], help="a kind of fault")
    parser.add_argument("--keep", type=Path, help="an empty directory; logs and data stay there")
    arguments = parser.parse_args()
    workload = PLAIN
    if arguments.large_batches or arguments.deletions:
        workload = LARGE_BATCHES if arguments.large_batches else DELETIONS
    records = arguments.records
    if records is None:
        bursts = workload.burst * workload.producers * arguments.faults
        records = bursts or 500_000
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fault-harness-") as directory:
        harness = FaultHarness(
            arguments.keep or Path(directory),
            seed=arguments.seed,
            records=records,
            minutes=arguments.minutes,
            transactions=arguments.transactions,
            workload=workload,
            only=arguments.only,
            secured=arguments.sasl_ssl,
            embedded_zookeeper=arguments.embedded_zookeeper,
            say=say,
        )
        try:
            harness.run(arguments.faults)
        except AssertionError as failure:
            say(f"seed {arguments.seed}: {failure}")
            return 1
        finally:
            harness.close()
    faults = ", ".join(
        f"{count} {kind} ({harness.silences_s[kind]:.1f} s)"
        for kind, count in harness.kinds.most_common()
    )
    say(
        f"{harness.kinds.total()} faults, seed {arguments.seed}: {len(harness.history.acks)} "
        f"records acked{summary(harness)}; full ISR after {harness.full_isr_after_s:.1f} s; "
        f"times without an ack: {faults}; {time.monotonic() - started:.0f} s, all well"
    )
    return 0


def summary(harness: FaultHarness) -> str:
    outcomes = Counter(t.outcome.value for t in harness.history.transactions.values())
    if not outcomes:
        return f", {harness.deletions} deletions" if harness.deletions else ""
    return f" in {outcomes['committed']} committed and {outcomes['aborted']} aborted transactions"


if __name__ == "__main__":
    raise SystemExit(main())
