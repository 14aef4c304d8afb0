"""How long one record takes alone: to its ack, and to a consumer that waits for it.

The consumer's Fetch is parked at the end of the log (min_bytes 1) before the Produce leaves; the
clock runs from sending the Produce to having the consumer's whole answer. Both sockets belong to
one thread, so no wake-up of a second client thread is in the figure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import wire
from bench.arena import Arena, Sample, alternate, best
from bench.null_server import null_server
from bench.peers import BrokerProcess
from bench.raw_client import RawClient, lone_requests, percentile
from bench.table import Figure, Report
from bench.wire import FetchAnswer, record_batch

TITLE = "latency"
TOPIC = "bench-latency"
PARKED_AFTER_S = 0.002


def run(arena: Arena) -> Report:
    acked, waited = arena.size.of(4_000, 20_000), arena.size.of(400, 2_000)
    with arena.brokers() as brokers:
        for broker in brokers:
            with broker.connect() as client:
                client.create_topic(TOPIC)
            for _ in range(3):
                _acked(broker, 5_000)
            _waiting(broker, waited)
        lone = alternate(brokers, arena.size.rounds, lambda broker: _acked(broker, acked))
        parked = alternate(brokers, arena.size.rounds, lambda broker: _waiting(broker, waited))
        alone = _client_alone(brokers[0], acked)
    return Report(
        TITLE,
        [
            _figure("lone 100 B record, acks=1: p50", best(lone, 0, higher=False), 0.8, alone[0]),
            _figure("lone 100 B record, acks=1: p99", best(lone, 1, higher=False), 0.8, alone[1]),
            _figure("Produce to a waiting consumer: p50", best(parked, 0, higher=False), 0.8),
            _figure("Produce to a waiting consumer: p99", best(parked, 1, higher=False)),
        ],
    )


def _figure(
    label: str,
    values: dict[str, Sample],
    target: float | None = None,
    client_alone: float | None = None,
) -> Figure:
    return Figure(label, "us", values, False, target=target, client_alone=client_alone)


def _p50_and_p99(seconds: Sequence[float]) -> list[Sample]:
    return [Sample(percentile(seconds, share) * 1e6) for share in (0.5, 0.99)]


def _acked(broker: BrokerProcess, count: int) -> list[Sample]:
    request = wire.produce_request(TOPIC, 0, record_batch(100, 1).data)
    with broker.connect() as client:
        before = client.end_offset(TOPIC)
        taken = lone_requests([client], [request], count)
        written = client.end_offset(TOPIC) - before
    if written != count:
        raise wire.BadAnswer(f"{count} records acked, {written} written")
    return _p50_and_p99(taken)


def _waiting(broker: BrokerProcess, count: int) -> list[Sample]:
    request = wire.produce_request(TOPIC, 0, record_batch(100, 1).data)
    taken = []
    with broker.connect() as producer, broker.connect() as consumer:
        offset = producer.end_offset(TOPIC)
        for turn in range(count):
            consumer.socket.sendall(
                wire.fetch_request(TOPIC, 0, offset + turn, max_bytes=65_536, max_wait_ms=30_000)
            )
            time.sleep(PARKED_AFTER_S)
            started = time.perf_counter()
            producer.socket.sendall(request)
            answer = consumer.receive_answer()
            taken.append(time.perf_counter() - started)
            producer.receive_answer()
            if not FetchAnswer.parse(answer, TOPIC).records_bytes:
                raise wire.BadAnswer("the waiting Fetch came back without the record")
    return _p50_and_p99(taken)


def _client_alone(broker: BrokerProcess, count: int) -> list[float]:
    request = wire.produce_request(TOPIC, 0, record_batch(100, 1).data)
    with broker.connect() as client:
        answer = client.ask(request)
    with null_server(len(request), answer) as port, RawClient(port) as client:
        return [sample.value for sample in _p50_and_p99(lone_requests([client], [request], count))]
