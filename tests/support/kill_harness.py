"""Rounds of: produce with acks=1, kill -9 at a random moment, damage what was never flushed,
restart, check.

What must hold after each restart, for every partition:
- offsets are dense, every batch is whole, index files agree with the log;
- no record is invented or doubled: each one read was sent, once;
- after a plain kill every acked record is at its offset (the page cache survives a killed process);
- after a lost tail every acked record below the flushed end is at its offset, and what is left is
a prefix
  of what was there. With log.flush.interval.messages=1 the flushed end is the last ack;
- an idempotent producer that repeats what it has no answer for finds each record exactly once;
- every topic whose creation was answered is there with its id.

The tail beyond the flushed end is cut, zeroed, garbled, or followed by zeroes, garbage or an old
batch again; indexes are garbled or removed. Some rounds also kill the broker while it recovers.

    python -m tests.support.kill_harness --rounds 200 [--seed 7] [--flush-each]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.raw_batch import batch, now_ms, read_batches
from tests.support.raw_client import (
    EARLIEST,
    LATEST,
    ClosedByBroker,
    RawClient,
    create_topic,
    fetch_partition,
    fetch_request,
    list_offset,
    new_producer_id,
    produce,
    produce_request,
    topic_metadata,
)
from tests.support.segment_check import check_partition, recovery_points, segment_paths

TOPIC = "kills"
PARTITIONS = 3
IDEMPOTENT_PARTITION = 2
IN_FLIGHT_MAX = 5
ROUNDS_PER_DIRECTORY = 8
# A snapshot keeps a producer's last batch only; older ones may be known as old, no longer where.
STALE_SEQUENCE_CODES = (45, 46)
BROKER_OVERRIDES = {
    "log.segment.bytes": "65536",
    "log.index.interval.bytes": "512",
    "log.index.size.max.bytes": "65536",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.scheduler.interval.ms": "50",
    "num.partitions": "1",
}


@dataclass
class PartitionHistory:
    """What was sent to a partition and what the broker promised, by value; values are unique."""

    sent: set[bytes] = field(default_factory=set)
    acked: dict[int, bytes] = field(default_factory=dict)  # offset -> value
    unanswered: deque[tuple[int, list[bytes]]] = field(default_factory=deque)  # base sequence
    producer: tuple[int, int] | None = None
    next_sequence: int = 0


class KillHarness:
    def __init__(self, directory: Path, *, seed: int, flush_each: bool) -> None:
        self.directory = directory
        self.random = random.Random(seed)
        self.flush_each = flush_each
        self.generation = 0
        self.rounds = 0
        self.acked_total = 0
        self.lost_tails = 0
        self.story: list[str] = []
        self.broker = self._fresh_broker()

    def close(self) -> None:
        self.broker.kill()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            if self.rounds and self.rounds % ROUNDS_PER_DIRECTORY == 0:
                self.broker.kill()
                shutil.rmtree(self.broker.directory)
                self.broker = self._fresh_broker()
            self.round()

    def round(self) -> None:
        """One round; a failure tells what was done to the files before it."""
        self.rounds += 1
        self.story = []
        try:
            self._kill_and_check()
        except AssertionError as failure:
            story = "\n".join(self.story)
            raise AssertionError(f"round {self.rounds}: {failure}\n{story}") from failure

    def _kill_and_check(self) -> None:
        self._produce_until_killed()
        flushed_ends = self._damage() if self.random.random() < 0.6 else None
        if self.random.random() < 0.2:
            self._kill_while_recovering()
        self.broker.start()
        with RawClient(self.broker.bootstrap) as client:
            for partition in range(PARTITIONS):
                self._check_records(client, partition, flushed_ends)
            self._check_topics(client)
            self._repeat_unanswered(client, lost_tail=flushed_ends is not None)
        self._check_files()

    def _fresh_broker(self) -> BrokerProcess:
        self.generation += 1
        overrides = dict(BROKER_OVERRIDES)
        overrides["log.flush.interval.messages"] = "1" if self.flush_each else "37"
        broker = BrokerProcess(self.directory / f"generation-{self.generation}", overrides)
        broker.start()
        self.histories = [PartitionHistory() for _ in range(PARTITIONS)]
        self.topics: dict[str, uuid.UUID] = {}
        with RawClient(broker.bootstrap) as client:
            create_topic(client, TOPIC, partitions=PARTITIONS)
            self.histories[IDEMPOTENT_PARTITION].producer = new_producer_id(client)
        return broker

    def _partition_directory(self, partition: int) -> Path:
        return self.broker.data_directory / f"{TOPIC}-{partition}"

    def _produce_until_killed(self) -> None:
        threads = [
            threading.Thread(target=self._produce, args=(partition,))
            for partition in range(PARTITIONS)
        ]
        threads.append(threading.Thread(target=self._create_topics))
        for thread in threads:
            thread.start()
        time.sleep(self.random.uniform(0.02, 0.35))
        self.broker.kill()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def _produce(self, partition: int) -> None:
        """Batches of unique values, several in flight, until the broker is gone."""
        history = self.histories[partition]
        dice = random.Random(f"{self.rounds}-{partition}")
        in_flight: deque[tuple[object, list[bytes]]] = deque()
        number = 0
        try:
            with RawClient(self.broker.bootstrap) as client:
                while True:
                    while len(in_flight) < IN_FLIGHT_MAX:
                        values = [
                            b"%d/%d/%d " % (self.rounds, partition, number + i)
                            + b"x" * dice.choice((10, 100, 1500))
                            for i in range(dice.randint(1, 4))
                        ]
                        number += len(values)
                        in_flight.append((self._send(client, partition, values), values))
                    self._take_answer(client, history, in_flight)
        except (ClosedByBroker, ConnectionError, OSError):
            return

    def _send(self, client: RawClient, partition: int, values: list[bytes]) -> object:
        history = self.histories[partition]
        history.sent.update(values)
        history.unanswered.append((history.next_sequence, values))
        request = produce_request(TOPIC, {partition: self._batch(history, values)}, acks=1)
        history.next_sequence += len(values)
        client.send(request)
        return request

    def _batch(
        self, history: PartitionHistory, values: list[bytes], sequence: int | None = None
    ) -> bytes:
        if history.producer is None:
            return batch(*values)
        producer_id, epoch = history.producer
        return batch(
            *values,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=history.next_sequence if sequence is None else sequence,
        )

    def _take_answer(
        self,
        client: RawClient,
        history: PartitionHistory,
        in_flight: deque[tuple[object, list[bytes]]],
    ) -> None:
        request, values = in_flight[0]
        row = client.receive(request).responses[0].partition_responses[0]
        assert row.error_code == 0, row
        in_flight.popleft()
        history.unanswered.popleft()
        for i, value in enumerate(values):
            history.acked[row.base_offset + i] = value
        self.acked_total += len(values)

    def _create_topics(self) -> None:
        try:
            with RawClient(self.broker.bootstrap) as client:
                for number in range(30):
                    name = f"made-{self.rounds}-{number}"
                    create_topic(client, name)
                    self.topics[name] = topic_metadata(client, name).topic_id
        except (ClosedByBroker, ConnectionError, OSError):
            return

    def _damage(self) -> dict[int, int]:
        """Spoils what was not flushed; the flushed end offset of each partition."""
        self.lost_tails += 1
        points = recovery_points(self.broker.data_directory)
        ends = {}
        for partition, history in enumerate(self.histories):
            end = points.get(f"{TOPIC}-{partition}", 0)
            if self.flush_each:
                end = max([end, *(offset + 1 for offset in history.acked)])
            ends[partition] = end
            self._damage_partition(self._partition_directory(partition), end)
        return ends

    def _damage_partition(self, directory: Path, flushed_end: int) -> None:
        paths = segment_paths(directory)
        flushed_ahead = sum(int(path.stem) <= flushed_end for path in paths)
        path = self.random.choice(paths[max(flushed_ahead - 1, 0) :])
        data = path.read_bytes()
        start = 0
        for found in read_batches(data):
            if found.last_offset < flushed_end:
                start = found.position + found.size_bytes
        spoiled, how = self._spoiled(data, start)
        path.write_bytes(spoiled)
        self.story.append(
            f"{directory.name}: flushed up to offset {flushed_end}; {path.name} of {len(data)} "
            f"bytes, flushed up to {start}, is {how}; bases {[int(p.stem) for p in paths]}"
        )
        for index in (path.with_suffix(".index"), path.with_suffix(".timeindex")):
            self._damage_index(index)

    def _spoiled(self, data: bytes, start: int) -> tuple[bytes, str]:
        at = self.random.randint(start, len(data))
        garbage = self.random.randbytes(self.random.randint(1, 3000))
        match self.random.randrange(6):
            case 0:
                return data[:at], f"cut at {at}"
            case 1:
                return data[:at] + bytes(len(data) - at), f"zeroed from {at}"
            case 2:
                garbled = data[:at] + garbage[: len(data) - at] + data[at + len(garbage) :]
                return garbled, f"garbled from {at} for {len(garbage)}"
            case 3:
                return data + bytes(4096), "followed by zeroes"
            case 4:
                return data + garbage, "followed by garbage"
            case _:
                first = read_batches(data)[:1]
                again = data[: first[0].size_bytes] if first else garbage
                return data + again, "followed by its first batch again"

    def _damage_index(self, path: Path) -> None:
        if not path.exists():
            return
        match self.random.randrange(4):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(self.random.randbytes(path.stat().st_size))
            case 2:
                path.write_bytes(path.read_bytes()[: self.random.randrange(64)])
            case _:
                return

    def _kill_while_recovering(self) -> None:
        self.broker.spawn()
        time.sleep(self.random.uniform(0.0, 0.4))
        self.broker.kill()
        self.story.append(f"killed again at {recovery_points(self.broker.data_directory)}")

    def _check_records(
        self, client: RawClient, partition: int, flushed_ends: dict[int, int] | None
    ) -> None:
        history = self.histories[partition]
        read = self._read_all(client, partition)
        where = f"round {self.rounds}, partition {partition}"
        offsets = [offset for offset, _ in read]
        assert offsets == list(range(len(offsets))), f"{where}: offsets are not dense"
        values = [value for _, value in read]
        assert len(set(values)) == len(values), f"{where}: a record is there twice"
        invented = [value for value in values if value not in history.sent]
        assert not invented, f"{where}: invented {invented[:3]}"
        promised = {
            offset: value
            for offset, value in history.acked.items()
            if flushed_ends is None or offset < flushed_ends[partition]
        }
        there = dict(read)
        missing = [offset for offset, value in promised.items() if there.get(offset) != value]
        assert not missing, f"{where}: acked records missing at {missing[:5]} of {len(there)}"
        moved = [
            offset
            for offset, value in there.items()
            if offset in history.acked and history.acked[offset] != value
        ]
        assert not moved, f"{where}: other records at {moved[:5]}"
        assert list_offset(client, TOPIC, LATEST, partition).offset == len(read), where
        assert list_offset(client, TOPIC, EARLIEST, partition).offset == 0, where
        history.acked = there

    def _read_all(self, client: RawClient, partition: int) -> list[tuple[int, bytes]]:
        read: list[tuple[int, bytes]] = []
        while True:
            request = fetch_request(TOPIC, [fetch_partition(partition, len(read))])
            row = client.call(request).responses[0].partitions[0]
            assert row.error_code == 0, row.error_code
            fresh = [
                (record.offset, record.value or b"")
                for found in read_batches(row.records or b"")
                for record in found.records()
                if record.offset >= len(read)
            ]
            if not fresh:
                return read
            read += fresh

    def _check_topics(self, client: RawClient) -> None:
        for name, identity in self.topics.items():
            row = topic_metadata(client, name)
            assert (row.error_code, row.topic_id) == (0, identity), f"topic {name} is lost"

    def _repeat_unanswered(self, client: RawClient, *, lost_tail: bool) -> None:
        """Producers without idempotence give up; the idempotent one repeats, if its history is
        whole."""
        for partition, history in enumerate(self.histories):
            pending = list(history.unanswered)
            history.unanswered.clear()
            if history.producer is None:
                continue
            if lost_tail:
                history.producer = new_producer_id(client)
                history.next_sequence = 0
                continue
            for sequence, values in pending:
                records = self._batch(history, values, sequence)
                row = produce(client, TOPIC, records, partition)
                if row.error_code in STALE_SEQUENCE_CODES:
                    assert set(values) <= set(history.acked.values()), "refused though not written"
                    continue
                assert row.error_code == 0, row
                for i, value in enumerate(values):
                    known = history.acked.setdefault(row.base_offset + i, value)
                    assert known == value, "a repeated batch was written again or elsewhere"

    def _check_files(self) -> None:
        for partition in range(PARTITIONS):
            check_partition(self._partition_directory(partition))
        if self.random.random() < 0.5:
            return
        assert self.broker.stop() == 0, self.broker.log_text()[-2000:]
        for partition in range(PARTITIONS):
            check_partition(self._partition_directory(partition))
        self.broker.start()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=now_ms() % 100_000)
    parser.add_argument("--flush-each", action="store_true", help="log.flush.interval.messages=1")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-harness-") as directory:
        harness = KillHarness(Path(directory), seed=arguments.seed, flush_each=arguments.flush_each)
        try:
            harness.run(arguments.rounds)
        finally:
            harness.close()
    sys.stdout.write(
        f"{harness.rounds} rounds, seed {arguments.seed}: {harness.acked_total} records acked, "
        f"{harness.lost_tails} lost tails, {time.monotonic() - started:.0f} s, all well\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
