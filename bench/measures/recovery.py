"""A 1 GB log after kill -9: from exec to the first read at its end.

16 KB batches in 64 MB segments, none of them flushed. The last record is read back and its CRC
checked; fewer records than were acked fail the measure (the page cache outlives the process).
"""

from __future__ import annotations

import time

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


def run(arena: Arena) -> Report:
    rounds: dict[str, list[list[Sample]]] = {peer.name: [] for peer in arena.peers}
    for _ in range(arena.size.of(1, 3)):
        for peer in arena.peers:
            rounds[peer.name].append([_round(arena, peer)])
    values = best(rounds, 0, higher=False)
    label = "1 GB log after kill -9, exec to first read at the end"
    return Report(TITLE, [Figure(label, "s", values, False, target=0.3)])


def _round(arena: Arena, peer: Peer) -> Sample:
    batch = batch_filling(1_000, 16_384)
    with arena.running(peer, {"log.segment.bytes": str(SEGMENT_BYTES)}) as broker:
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
