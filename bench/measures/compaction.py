"""Compaction of 1 GB: 1 KB records over 1 M keys, with 32 MB for the key map.

Both peers get the same batches (16 KB, keys drawn by the same seed) in 64 MB segments while the
topic's min.cleanable.dirty.ratio of 1 keeps the cleaner away. Then the ratio is lowered; the clock
runs from there until the cleaner's checkpoint has reached the active segment, which both write when
the last segment is swapped in. The cleaner looks for work every 100 ms, which counts, too. What
counts as done are the bytes of the inactive segments before. Fewer keys than were written, or
a key's record other than its last, fail the measure.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench import wire
from bench.arena import Arena, Sample, best, with_broker_cpu
from bench.peers import BrokerFailed, BrokerProcess, Peer
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.wire import BadAnswer

TITLE = "compaction"
TOPIC = "bench-compaction"
RECORDS_PER_BATCH = 15
VALUE_BYTES = 1_000
KEYS = 1_000_000
SEGMENT_BYTES = 64 << 20
IN_FLIGHT = 5
DONE_TIMEOUT_S = 600
POLL_S = 0.01
SETTINGS = {
    "log.cleaner.dedupe.buffer.size": str(32_000_000),
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "1",
}


def run(arena: Arena) -> Report:
    megabytes = arena.size.of(100, 1_000)
    rounds: dict[str, list[list[Sample]]] = {peer.name: [] for peer in arena.peers}
    for _ in range(arena.size.of(1, 3)):
        for peer in arena.peers:
            rounds[peer.name].append([_round(arena, peer, megabytes)])
    label = f"{megabytes:,} MB of 1 KB records over {_keys(megabytes):,} keys, 32 MB map"
    return Report(TITLE, [Figure(label, "MB/s", best(rounds, 0, higher=True), True, target=1.0)])


def _keys(megabytes: int) -> int:
    return KEYS * megabytes // 1_000


def _round(arena: Arena, peer: Peer, megabytes: int) -> Sample:
    with arena.running(peer, SETTINGS) as broker:
        with broker.connect() as client:
            client.create_topic(
                TOPIC,
                cleanup_policy="compact",
                segment_bytes=str(SEGMENT_BYTES),
                min_cleanable_dirty_ratio="1.0",
            )
            last = _produce(client, megabytes)
        folder = broker.data / f"{TOPIC}-0"
        active_offset, *sealed = sorted(
            (int(path.stem) for path in folder.glob("*.log")), reverse=True
        )
        dirty_bytes = sum((folder / f"{offset:020d}.log").stat().st_size for offset in sealed)
        sample = with_broker_cpu(broker, lambda: _clean(broker, active_offset, dirty_bytes))
        _check(folder, last, active_offset)
        return sample


def _produce(client: RawClient, megabytes: int) -> dict[int, int]:
    """Of each key its last offset."""
    chance = random.Random(megabytes)
    last: dict[int, int] = {}
    unanswered = 0
    for first_offset, batch in _batches(chance, megabytes, last):
        client.socket.sendall(wire.produce_request(TOPIC, 0, batch))
        unanswered += 1
        if unanswered == IN_FLIGHT:
            client.receive_answer()
            unanswered -= 1
        end_offset = first_offset + RECORDS_PER_BATCH
    for _ in range(unanswered):
        client.receive_answer()
    if client.end_offset(TOPIC) != end_offset:
        raise BadAnswer(f"the log ends at {client.end_offset(TOPIC)}, sent {end_offset} records")
    return last


def _batches(
    chance: random.Random, megabytes: int, last: dict[int, int]
) -> Iterator[tuple[int, bytes]]:
    keys_count = _keys(megabytes)
    for offset in range(0, megabytes * 1_000, RECORDS_PER_BATCH):
        keys = [chance.randrange(keys_count) for _ in range(RECORDS_PER_BATCH)]
        for place, key in enumerate(keys):
            last[key] = offset + place
        yield offset, wire.keyed_batch([b"%012d" % key for key in keys], VALUE_BYTES)


def _clean(broker: BrokerProcess, active_offset: int, dirty_bytes: int) -> Sample:
    started = time.perf_counter()
    _lower_ratio(broker)
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    while _cleaned_to(checkpoint) < active_offset:
        broker.check_alive()
        if time.perf_counter() - started > DONE_TIMEOUT_S:
            raise BrokerFailed(f"{broker.name} has cleaned to {_cleaned_to(checkpoint)} only")
        time.sleep(POLL_S)
    return Sample(dirty_bytes / (time.perf_counter() - started) / 1e6)


def _lower_ratio(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 3})
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def _cleaned_to(checkpoint: Path) -> int:
    rows = [line.split() for line in checkpoint.read_text().splitlines()[2:]]
    return max((int(row[2]) for row in rows if row[0] == TOPIC), default=-1)


def _check(folder: Path, last: dict[int, int], active_offset: int) -> None:
    """Below the active segment every key occurs once, under its last offset if it is there."""
    found: dict[int, int] = {}
    for path in folder.glob("*.log"):
        if int(path.stem) < active_offset:
            for key, offset in wire.keys_and_offsets(path.read_bytes()):
                if found.setdefault(int(key), offset) != offset:
                    raise BadAnswer(f"key {key!r} occurs twice")
    lost = sum(found.get(key) != offset for key, offset in last.items() if offset < active_offset)
    if lost:
        raise BadAnswer(f"{lost} keys have not kept their last record")
