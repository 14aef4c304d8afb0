"""What a lone request costs tidelog as partitions, connections and the log grow.

Each cost is the p50 of requests sent one at a time, taken in rounds that alternate between the
sizes; the best round counts. It is to stay flat. Memory and restart are printed to be known.

- partitions: a broker for each size; requests go to a partition in the middle.
- connections: all open on one broker and used in turn.
- log: a topic for each length in 16 KB batches; Fetches go to offsets all over it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from bench import wire
from bench.arena import Arena
from bench.measures.start import seconds_to_first_ack
from bench.peers import BrokerProcess, Peer
from bench.raw_client import RawClient, lone_requests, percentile
from bench.table import Report, Series
from bench.wire import batch_filling, record_batch

TITLE = "cost of a lone request"
TOPIC = "bench-scaling"
PARTITIONS = (1, 100, 5_000)
CONNECTIONS = (1, 100, 500)
FETCH_BYTES = 16_384
RANDOM_OFFSETS = 500
RECORD = record_batch(100, 1)
BATCH = batch_filling(1_000, FETCH_BYTES)

Probe = Callable[[], Sequence[float]]


def run(arena: Arena) -> Report:
    tidelog = arena.tidelog
    if tidelog is None:
        return Report(TITLE, remarks=["tidelog is not among the peers: nothing measured"])
    return Report(
        TITLE,
        series=[
            *_by_partitions(arena, tidelog),
            *_by_connections(arena, tidelog),
            *_by_log_length(arena, tidelog),
        ],
    )


def _requests(arena: Arena) -> int:
    return arena.size.of(2_000, 10_000)


def _p50_us(arena: Arena, probes: Mapping[str, Probe]) -> list[tuple[str, float]]:
    """Rounds that go through the sizes in turn, after one that warms each up."""
    for probe in probes.values():
        probe()
    rounds = [
        [percentile(probe(), 0.5) * 1e6 for probe in probes.values()]
        for _ in range(arena.size.rounds + 1)
    ]
    return [
        (size, min(column)) for size, column in zip(probes, zip(*rounds, strict=True), strict=True)
    ]


def _cost(
    arena: Arena, label: str, targets: Mapping[str, tuple[Sequence[RawClient], Sequence[bytes]]]
) -> Series:
    count = _requests(arena)

    def probe(clients: Sequence[RawClient], requests: Sequence[bytes]) -> Probe:
        return lambda: lone_requests(clients, requests, count)

    probes = {size: probe(clients, requests) for size, (clients, requests) in targets.items()}
    return Series(label, "us", _p50_us(arena, probes))


def _by_partitions(arena: Arena, tidelog: Peer) -> list[Series]:
    with ExitStack() as stack:
        brokers: dict[int, BrokerProcess] = {}
        clients: dict[int, RawClient] = {}
        for count in PARTITIONS:
            broker = stack.enter_context(arena.running(tidelog))
            client = stack.enter_context(broker.connect())
            client.create_topic(TOPIC, count)
            for index in range(count):
                client.ask(wire.produce_request(TOPIC, index, BATCH.data))
            brokers[count], clients[count] = broker, client
        produce = {
            _thousands(count): ([clients[count]], [_produce(count // 2)]) for count in PARTITIONS
        }
        fetch = {
            _thousands(count): ([clients[count]], [_fetch(count // 2)]) for count in PARTITIONS
        }
        in_turn = {
            _thousands(count): ([clients[count]], [_produce(index) for index in range(count)])
            for count in PARTITIONS
        }
        costs = [
            _cost(arena, "Produce, by partitions", produce),
            _cost(arena, "Fetch of 16 KB, by partitions", fetch),
            _cost(arena, "Produce to all in turn, by partitions", in_turn),
        ]
        return [*costs, *_memory_and_restart(brokers)]


def _memory_and_restart(brokers: Mapping[int, BrokerProcess]) -> list[Series]:
    memory = [
        (_thousands(count), broker.resident_bytes() / 1e6) for count, broker in brokers.items()
    ]
    restarts: dict[str, list[tuple[str, float]]] = {"stop": [], "kill -9": []}
    for count, broker in brokers.items():
        broker.stop()
        restarts["stop"].append((_thousands(count), seconds_to_first_ack(broker, TOPIC)))
        broker.kill()
        restarts["kill -9"].append((_thousands(count), seconds_to_first_ack(broker, TOPIC)))
    return [
        Series("resident memory, by partitions", "MB", memory, limit=None),
        *(
            Series(f"exec to first ack after {end}, by partitions", "s", points, limit=None)
            for end, points in restarts.items()
        ),
    ]


def _by_connections(arena: Arena, tidelog: Peer) -> list[Series]:
    with arena.running(tidelog) as broker, ExitStack() as stack:
        clients = [stack.enter_context(broker.connect()) for _ in range(max(CONNECTIONS))]
        clients[0].create_topic(TOPIC)
        for client in clients:
            client.ask(wire.produce_request(TOPIC, 0, BATCH.data))
        produce = {_thousands(count): (clients[:count], [_produce(0)]) for count in CONNECTIONS}
        fetch = {_thousands(count): (clients[:count], [_fetch(0)]) for count in CONNECTIONS}
        return [
            _cost(arena, "Produce, by connections used in turn", produce),
            _cost(arena, "Fetch of 16 KB, by connections used in turn", fetch),
        ]


def _by_log_length(arena: Arena, tidelog: Peer) -> list[Series]:
    lengths = {"1 MB": 1_000_000, "1 GB": 1_000_000_000}
    if not arena.size.quick:
        lengths["10 GB"] = 10_000_000_000
    with arena.running(tidelog) as broker, broker.connect() as client:
        produce: dict[str, tuple[Sequence[RawClient], Sequence[bytes]]] = {}
        fetch: dict[str, tuple[Sequence[RawClient], Sequence[bytes]]] = {}
        for position, (label, length) in enumerate(lengths.items()):
            topic = f"{TOPIC}-{position}"
            batches = length // len(BATCH.data)
            client.create_topic(topic)
            client.produce(topic, BATCH, batches)
            produce[label] = ([client], [wire.produce_request(topic, 0, RECORD.data)])
            fetch[label] = ([client], _fetches_all_over(topic, batches))
        return [
            _cost(arena, "Fetch of 16 KB at any offset, by log length", fetch),
            _cost(arena, "Produce, by log length", produce),
        ]


def _fetches_all_over(topic: str, batches: int) -> list[bytes]:
    chosen = random.Random(batches)
    return [
        wire.fetch_request(
            topic, 0, chosen.randrange(batches) * BATCH.records_count, max_bytes=FETCH_BYTES
        )
        for _ in range(RANDOM_OFFSETS)
    ]


def _produce(partition: int) -> bytes:
    return wire.produce_request(TOPIC, partition, RECORD.data)


def _fetch(partition: int) -> bytes:
    return wire.fetch_request(TOPIC, partition, 0, max_bytes=FETCH_BYTES)


def _thousands(count: int) -> str:
    return f"{count:,}"
