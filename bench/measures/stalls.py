"""What an idle client waits for while the broker does something large for somebody else.

The idle client asks ApiVersions every few milliseconds from before the operation until some time
after its answer, because a broker may go on with it in the background. Its longest wait is the
figure; of the rounds the best counts.

- deletions: many groups have committed one partition of one topic. First 100 topics go that no
  group knows, in one request, then the one that all groups know.
- partitions: one topic of 5,000.
- expiry: commits of ten partitions each (OffsetCommit v4 names the retention), all due at once.
- read_committed: one old segment of 700 MB in 16 KB batches that begins with a transaction, read
  from its start for the first time after a restart; its pages are in the page cache (warm) or have
  been dropped from it (cold). The transaction is confluent-kafka's.
- gzip: batches of 900 KB arrive uncompressed for a topic that stores gzip.
"""

from __future__ import annotations

import importlib.util
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import wire
from bench.arena import Arena, Sample
from bench.group_wire import (
    commit_errors,
    expiring_commit_request,
    fetched_offsets,
    offset_commit_request,
    offset_fetch_request,
    wait_for_coordinator,
)
from bench.idle_client import LONGEST_WAIT_MS, QUIET_S, longest_wait
from bench.peers import BrokerProcess, Peer
from bench.raw_client import RawClient
from bench.table import Figure, Report

TITLE = "stalls: the longest wait of an idle client"

TOPIC = "bench-stalls"
PARTITIONS_PER_COMMIT = 10
CHECK_INTERVAL_S = 5
GIVE_UP_S = 120.0
GZIP_BATCHES = 10
BATCH_BYTES = 900_000

Rows = dict[str, Sample]


def run(arena: Arena) -> Report:
    groups = arena.size.of(2_000, 20_000)
    partitions = arena.size.of(500, 5_000)
    segment_bytes = arena.size.of(100, 700) * 1_000_000
    per_commit = PARTITIONS_PER_COMMIT
    cases: list[tuple[Sequence[str], Callable[[Arena, Peer], Sequence[Sample]]]] = [
        (
            (
                f"delete 100 topics beside {groups:,} groups",
                f"delete one topic that {groups:,} groups committed",
            ),
            lambda arena, peer: _deletions(arena, peer, groups),
        ),
        (
            (f"create {partitions:,} partitions",),
            lambda arena, peer: [_partitions(arena, peer, partitions)],
        ),
        (
            (f"expire {groups * per_commit:,} offsets",),
            lambda arena, peer: [_expiry(arena, peer, groups)],
        ),
        (
            (
                f"first read_committed read of {segment_bytes // 1_000_000} MB: warm",
                f"first read_committed read of {segment_bytes // 1_000_000} MB: cold",
            ),
            lambda arena, peer: _old_segment(arena, peer, segment_bytes),
        ),
        (
            ("900 KB batches recompressed with gzip",),
            lambda arena, peer: [_recompression(arena, peer)],
        ),
    ]
    remarks: list[str] = []
    if importlib.util.find_spec("confluent_kafka") is None:
        cases = [case for case in cases if "read_committed" not in case[0][0]]
        remarks.append("confluent-kafka is not installed: no read_committed read measured")
    figures: list[Figure] = []
    for labels, measure in cases:
        rows: list[Rows] = [{} for _ in labels]
        for _ in range(arena.size.of(1, 2)):
            for peer in arena.peers:
                for row, sample in zip(rows, measure(arena, peer), strict=True):
                    before = row.get(peer.name, sample)
                    row[peer.name] = min(before, sample, key=lambda each: each.value)
        figures += [
            Figure(label, "ms", row, False, target=1.0, own_limit=LONGEST_WAIT_MS)
            for label, row in zip(labels, rows, strict=True)
        ]
    return Report(TITLE, figures, remarks=remarks)


def _group(number: int) -> str:
    return f"stalls-{number}"


# Deletions


def _deletions(arena: Arena, peer: Peer, groups: int) -> list[Sample]:
    names = [f"{TOPIC}-{number}" for number in range(100)]
    with arena.running(peer) as broker, broker.connect() as client:
        client.create_topic(TOPIC)
        for name in names:
            client.create_topic(name)
        wait_for_coordinator(client, _group(0), TOPIC)
        for number in range(groups):
            _must_commit(client, offset_commit_request(_group(number), TOPIC, [number]))
        return [
            longest_wait(broker, lambda: _delete(client, names)),
            longest_wait(broker, lambda: _delete(client, [TOPIC])),
        ]


def _must_commit(client: RawClient, request: bytes) -> None:
    errors = commit_errors(client.ask(request))
    if any(errors):
        raise wire.BadAnswer(f"a commit was refused: {errors}")


def _delete(client: RawClient, topics: Sequence[str]) -> None:
    error = wire.topic_error(client.ask(wire.delete_topics_request(topics)))
    if error:
        raise wire.BadAnswer(f"DeleteTopics answered error code {error}")


# Partitions


def _partitions(arena: Arena, peer: Peer, count: int) -> Sample:
    with arena.running(peer) as broker, broker.connect() as client:
        return longest_wait(broker, lambda: client.create_topic(TOPIC, count))


# Expiry


def _expiry(arena: Arena, peer: Peer, groups: int) -> Sample:
    overrides = {"offsets.retention.check.interval.ms": str(CHECK_INTERVAL_S * 1000)}
    with arena.running(peer, overrides) as broker, broker.connect() as client:
        client.create_topic(TOPIC, PARTITIONS_PER_COMMIT)
        wait_for_coordinator(client, _group(0), TOPIC)
        patience_s = groups * 0.002 + 5
        due_at = time.monotonic() + patience_s
        offsets = range(PARTITIONS_PER_COMMIT)
        for number in range(groups):
            left_ms = max(1, round((due_at - time.monotonic()) * 1000))
            _must_commit(
                client,
                expiring_commit_request(_group(number), TOPIC, offsets, retention_ms=left_ms),
            )
        time.sleep(max(0.0, due_at - time.monotonic() - QUIET_S))
        return longest_wait(broker, lambda: _wait_for_expiry(client, groups))


def _wait_for_expiry(client: RawClient, groups: int) -> None:
    give_up_at = time.monotonic() + GIVE_UP_S
    left = [_group(number) for number in range(0, groups, max(1, groups // 50))]
    while left:
        if time.monotonic() > give_up_at:
            raise wire.BadAnswer(f"offsets of {len(left)} groups have not expired")
        request = offset_fetch_request(left[-1], TOPIC, PARTITIONS_PER_COMMIT)
        if any(offset >= 0 for offset in fetched_offsets(client.ask(request))):
            time.sleep(0.1)
        else:
            left.pop()


# An old segment


def _old_segment(arena: Arena, peer: Peer, segment_bytes: int) -> list[Sample]:
    batch = wire.batch_filling(1_000, 16_384)
    with arena.running(peer) as broker:
        with broker.connect() as client:
            client.create_topic(TOPIC, segment_bytes=str(segment_bytes))
            _commit_transaction(broker)
            while client.end_offset(TOPIC) < 2:  # Kafka writes the marker after its answer
                time.sleep(0.01)
            client.produce(TOPIC, batch, segment_bytes // len(batch.data) + 5)
        return [_first_read(broker, cold=False), _first_read(broker, cold=True)]


def _commit_transaction(broker: BrokerProcess) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{broker.port}", "transactional.id": TOPIC}
    )
    producer.init_transactions(GIVE_UP_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"first", partition=0)
    producer.commit_transaction(GIVE_UP_S)


def _first_read(broker: BrokerProcess, *, cold: bool) -> Sample:
    broker.stop()
    for path in broker.data.glob(f"{TOPIC}-0/*.log"):
        (_drop_from_page_cache if cold else _take_into_page_cache)(path)
    broker.start()
    with broker.connect() as client:
        _wait_until_led(client)
        request = wire.fetch_request(TOPIC, 0, 0, max_bytes=1 << 20, read_committed=True)
        return longest_wait(broker, lambda: client.ask(request))


def _wait_until_led(client: RawClient) -> None:
    """A broker answers before it has heard which partitions it leads."""
    give_up_at = time.monotonic() + GIVE_UP_S
    while True:
        try:
            client.end_offset(TOPIC)
            return
        except wire.BadAnswer:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)


def _drop_from_page_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _take_into_page_cache(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


# Recompression


def _recompression(arena: Arena, peer: Peer) -> Sample:
    """Keys of random digits stand for data that does not compress at once."""
    dice = random.Random(20)
    keys = [b"%0800x" % dice.getrandbits(3_200) for _ in range(BATCH_BYTES // 1_000)]
    request = wire.produce_request(TOPIC, 0, wire.keyed_batch(keys, 180))
    answer = wire.ProduceAnswer.for_topic(TOPIC)
    with arena.running(peer) as broker, broker.connect() as client:
        client.create_topic(TOPIC, compression_type="gzip")

        def work() -> None:
            for _ in range(GZIP_BATCHES):
                answer.base_offset(client.ask(request))

        work()
        return longest_wait(broker, work)
