"""From exec to the first acked record: fresh data directory, topic made by auto-creation.

The client tries from the exec on: connect, Metadata that asks for the topic, Produce, until one
Produce is acked without an error.
"""

from __future__ import annotations

import time

from bench import wire
from bench.arena import Arena, Sample, best
from bench.peers import START_TIMEOUT_S, BrokerFailed, BrokerProcess, Peer
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.wire import ProduceAnswer, record_batch

TITLE = "start"
TOPIC = "bench-start"
READY_LIMIT_S = 0.2
RETRY_S = 0.002


def run(arena: Arena) -> Report:
    rounds: dict[str, list[list[Sample]]] = {peer.name: [] for peer in arena.peers}
    for _ in range(arena.size.rounds):
        for peer in arena.peers:
            rounds[peer.name].append([_round(arena, peer)])
    values = best(rounds, 0, higher=False)
    row = Figure("exec to first acked record", "s", values, False, own_limit=READY_LIMIT_S)
    return Report(TITLE, [row])


def _round(arena: Arena, peer: Peer) -> Sample:
    with arena.laid_out(peer) as broker:
        return Sample(seconds_to_first_ack(broker, TOPIC))


def seconds_to_first_ack(broker: BrokerProcess, topic: str) -> float:
    started = broker.spawn()
    while not _acked(broker, topic):
        broker.check_alive()
        if time.perf_counter() - started > START_TIMEOUT_S:
            raise BrokerFailed(f"{broker.name} acked nothing in {START_TIMEOUT_S} s")
        time.sleep(RETRY_S)
    return time.perf_counter() - started


def _acked(broker: BrokerProcess, topic: str) -> bool:
    """Tries on one connection until it works or the connection fails."""
    metadata = wire.metadata_request([topic], auto_create=True)
    produce = wire.produce_request(topic, 0, record_batch(100, 1).data)
    layout = ProduceAnswer.for_topic(topic)
    try:
        with RawClient(broker.port, timeout_s=10) as client:
            while not wire.led_partitions(client.ask(metadata)):
                time.sleep(RETRY_S)
            layout.base_offset(client.ask(produce))
    except (OSError, wire.BadAnswer):
        return False
    return True
