"""Resident memory: idle with one small topic, and after 1 GB written and read back."""

from __future__ import annotations

import time

from bench.arena import Arena, Sample
from bench.peers import Peer
from bench.table import Figure, Report
from bench.wire import batch_filling

TITLE = "resident memory"
TOPIC = "bench-memory"
LOAD_BYTES = 1_000_000_000
SETTLE_S = 3.0
IDLE_LIMIT_MB = 40


def run(arena: Arena) -> Report:
    idle: dict[str, Sample] = {}
    loaded: dict[str, Sample] = {}
    for peer in arena.peers:
        idle[peer.name], loaded[peer.name] = _idle_and_loaded(arena, peer)
    return Report(
        TITLE,
        [
            Figure("idle", "MB", idle, False, own_limit=IDLE_LIMIT_MB),
            Figure("after 1 GB written and read", "MB", loaded, False, target=0.25),
        ],
    )


def _idle_and_loaded(arena: Arena, peer: Peer) -> tuple[Sample, Sample]:
    batch = batch_filling(1_000, 16_384)
    count = LOAD_BYTES // len(batch.data)
    with arena.running(peer) as broker, broker.connect() as client:
        client.create_topic(TOPIC)
        time.sleep(SETTLE_S)
        idle = Sample(broker.resident_bytes() / 1e6)
        client.produce(TOPIC, batch, count)
        client.fetch_all(TOPIC, batch, count)
        time.sleep(SETTLE_S)
        return idle, Sample(broker.resident_bytes() / 1e6)
