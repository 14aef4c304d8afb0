"""A 1 GB log after kill -9: from exec to the first read at its end.

16 KB batches in 64 MB segments, none of them flushed. The last record is read back and its CRC
checked; fewer records than were acked fail the measure (the page cache outlives the process).

A killed KRaft broker with default settings waits for its own dead session (9 s) before it serves
again, whatever its log holds. The second row gives Kafka a session of 1 s, so that what is left is
start and recovery of the log; it is the harder of the two comparisons.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench import wire
from bench.arena import Arena, Sample, best
from bench.peers import START_TIMEOUT_S, BrokerFailed, BrokerProcess, Peer
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.wire import FetchAnswer, batch_filling

TITLE = "recovery"
TOPIC = "bench-recovery"
LOG_BYTES = 1_000_000_000
SEGMENT_BYTES = 64 << 20
RETRY_S = 0.005
SHORT_SESSION = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}


def run(arena: Arena) -> Report:
    label = "1 GB log after kill -9, exec to first read at the end"
    return Report(
        TITLE,
        [
            _figure(arena, label, {}),
            _figure(arena, f"{label}, short KRaft session", SHORT_SESSION),
        ],
    )


def _figure(arena: Arena, label: str, kafka_overrides: Mapping[str, str]) -> Figure:
    rounds: dict[str, list[list[Sample]]] = {peer.name: [] for peer in arena.peers}
    for _ in range(arena.size.of(1, 3)):
        for peer in arena.peers:
            overrides = kafka_overrides if peer.name == "kafka" else {}
            rounds[peer.name].append([_round(arena, peer, overrides)])
    return Figure(label, "s", best(rounds, 0, higher=False), False, target=0.3)


def _round(arena: Arena, peer: Peer, overrides: Mapping[str, str]) -> Sample:
    batch = batch_filling(1_000, 16_384)
    settings = {"log.segment.bytes": str(SEGMENT_BYTES), **overrides}
    with arena.running(peer, settings) as broker:
        with broker.connect() as client:
            client.create_topic(TOPIC)
            client.produce(TOPIC, batch, LOG_BYTES // len(batch.data))
            end_offset = client.end_offset(TOPIC)
        broker.kill()
        return Sample(_seconds_to_read(broker, end_offset - 1))


def _seconds_to_read(broker: BrokerProcess, offset: int) -> float:
    started = broker.spawn()
    while not _reads(broker, offset):
        broker.check_alive()
        if time.perf_counter() - started > START_TIMEOUT_S:
            raise BrokerFailed(f"{broker.name} does not serve offset {offset}")
        time.sleep(RETRY_S)
    return time.perf_counter() - started


def _reads(broker: BrokerProcess, offset: int) -> bool:
    request = wire.fetch_request(TOPIC, 0, offset, max_bytes=1 << 20, max_wait_ms=0, min_bytes=0)
    try:
        with RawClient(broker.port, timeout_s=30) as client:
            answer = client.ask(request)
            head = FetchAnswer.parse(answer, TOPIC)
    except (OSError, wire.BadAnswer):
        return False
    records = memoryview(answer)[head.records_position :][: head.records_bytes]
    return wire.last_offset_of(records) >= offset
