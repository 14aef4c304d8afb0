"""Three brokers over a real ZooKeeper, real clients, and one random fault after another.

Replication 3, min.insync.replicas 2, no unclean elections: nothing that was acknowledged may be
lost, doubled or moved, whatever is killed, paused or cut off (`cluster_faults`). Clients write down
what they did and saw (`fault_workload`), the checker reads it (`history_check`), and when all
replicas are in sync again and stopped their files must be equal (`replica_comparison`).

    python -m tests.support.fault_harness --faults 100 --records 500000 --minutes 10
        [--transactions] [--seed N] [--keep DIR]
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

from tests.support.broker_process import TIDELOG
from tests.support.cluster_faults import FaultDice
from tests.support.cluster_history import History
from tests.support.fault_workload import (
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
PARTITIONS = 6
PRODUCERS = 3
SURPLUS = 1.2  # more is sent than must be acked
LONGEST_SHARE = 0.75  # of the time between two faults
PEACE_WITHIN_S = 60.0
READ_WITHIN_S = 120.0
WARM_UP_S = 2.0
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


class FaultHarness:
    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        records: int,
        minutes: float,
        transactions: bool = False,
        only: Collection[str] = (),
        shortest_s: float = 0.0,
        peace_within_s: float = PEACE_WITHIN_S,
        program: Sequence[str] = TIDELOG,
        overrides: Mapping[str, str] | None = None,
        say: Say = lambda line: None,
    ) -> None:
        self._dice = random.Random(seed)
        self._records = records
        self._duration_s = minutes * 60
        self._transactions = transactions
        self._only = only
        self._shortest_s = shortest_s  # a fault; it may last LONGEST_SHARE
        self._peace_within_s = peace_within_s
        self._say = say
        self.history = History()
        self.kinds: Counter[str] = Counter()
        self.full_isr_after_s = 0.0
        self.silences_s: dict[str, float] = {}  # the longest in which a partition had no ack
        self.cluster = FaultyCluster(directory, overrides={**OVERRIDES, **(overrides or {})})
        for broker in self.cluster.brokers.values():
            broker.program = program
        self._workers: list[Worker] = []
        self._writers: list[Worker] = []

    def close(self) -> None:
        for worker in (*self._writers, *self._workers):
            worker.stopping.set()
        self.cluster.close()

    def run(self, faults: int) -> None:
        """AssertionError if the cluster has not kept its word."""
        self.cluster.start()
        self.cluster.create_topic(TOPIC, PARTITIONS)
        self._start_clients()
        time.sleep(WARM_UP_S)
        self._go_through(faults)
        self._make_peace()
        self._require_well()

    def _start_clients(self) -> None:
        bootstrap = self.cluster.bootstrap
        pace = Pace(self._records * SURPLUS / PRODUCERS / self._duration_s)
        kind = TransactionalProducer if self._transactions else PlainProducer
        self._writers = [
            kind(bootstrap, TOPIC, PARTITIONS, number, self.history, pace)
            for number in range(PRODUCERS)
        ]
        self._workers = [Follower(bootstrap, TOPIC, PARTITIONS, "follower", self.history)]
        for worker in (*self._workers, *self._writers):
            worker.start()

    # Faults

    def _go_through(self, faults: int) -> None:
        dice = FaultDice(self.cluster, self._dice, self._only)
        slot_s = self._duration_s / faults
        started = time.monotonic()
        for number in range(faults):
            kind, fault = dice.roll()
            lasts_s = self._dice.uniform(self._shortest_s, slot_s * LONGEST_SHARE)
            began = time.monotonic()
            fault.begin()
            time.sleep(lasts_s)
            fault.end()
            took_s = time.monotonic() - began
            self.kinds[kind] += 1
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

    def _require_alive(self, after: str) -> None:
        dead = [number for number, broker in self.cluster.brokers.items() if not broker.is_alive()]
        logs = "\n".join(self.cluster.brokers[number].log_text()[-3000:] for number in dead)
        assert not dead, f"brokers {dead} have ended by themselves after {after}\n{logs}"

    def silence_s(self, since: float) -> float:
        """The longest time in which one of the partitions had no ack."""
        longest = 0.0
        now = time.monotonic()
        for partition in range(PARTITIONS):
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
        topics = [TOPIC, *(["__transaction_state"] if self._transactions else [])]
        try:
            self.cluster.wait_for_full_isr(topics, within_s=self._peace_within_s)
        except AssertionError as failure:
            raise AssertionError("replicas stay out of sync") from failure
        self.full_isr_after_s = time.monotonic() - began
        self._wait_for_records()
        for writer in self._writers:
            writer.stop()
        bootstrap = self.cluster.bootstrap
        self.history.polls += read_to_the_end(bootstrap, TOPIC, PARTITIONS, READ_WITHIN_S)
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
        unequal = differences(data)
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
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--seed", type=int, default=now_ms() % 100_000)
    parser.add_argument("--only", action="append", default=[], help="a kind of fault")
    parser.add_argument("--keep", type=Path, help="an empty directory; logs and data stay there")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fault-harness-") as directory:
        harness = FaultHarness(
            arguments.keep or Path(directory),
            seed=arguments.seed,
            records=arguments.records,
            minutes=arguments.minutes,
            transactions=arguments.transactions,
            only=arguments.only,
            say=say,
        )
        try:
            harness.run(arguments.faults)
        except AssertionError as failure:
            say(f"seed {arguments.seed}: {failure}")
            return 1
        finally:
            harness.close()
    kinds = ", ".join(
        f"{count} {kind} ({harness.silences_s[kind]:.1f} s)"
        for kind, count in harness.kinds.most_common()
    )
    say(
        f"{harness.kinds.total()} faults, seed {arguments.seed}: {len(harness.history.acks)} "
        f"records acked{summary(harness)}; full ISR after {harness.full_isr_after_s:.1f} s; "
        f"times without an ack: {kinds}; {time.monotonic() - started:.0f} s, all well"
    )
    return 0


def summary(harness: FaultHarness) -> str:
    outcomes = Counter(t.outcome.value for t in harness.history.transactions.values())
    if not outcomes:
        return ""
    return f" in {outcomes['committed']} committed and {outcomes['aborted']} aborted transactions"


if __name__ == "__main__":
    raise SystemExit(main())
