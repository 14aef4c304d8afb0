"""One connection, Produce requests pipelined five deep, acks=1.

Small requests show what a request costs, large ones what a byte costs. Every round writes to a
topic of its own, deleted afterwards, so that no round pays for the dirty pages of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.null_server import null_server
from bench.peers import BrokerProcess
from bench.raw_client import RawClient, Run
from bench.table import Figure, Report
from bench.wire import Batch, batch_filling, record_batch

TITLE = "one connection, Produce pipelined (5 in flight, acks=1)"
TOPIC = "bench-produce"
IN_FLIGHT = 5


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    batch: Batch
    count: int  # requests a round
    target: float | None
    by_request: bool  # judged by requests/s rather than MB/s

    @property
    def unit(self) -> str:
        return "requests/s" if self.by_request else "MB/s"

    def value(self, run: Run) -> float:
        return run.requests_per_second if self.by_request else run.megabytes_per_second


def cases(arena: Arena) -> list[Case]:
    small, medium = arena.size.of(15_000, 60_000), arena.size.of(6_000, 20_000)
    large = arena.size.of(250, 600)
    return [
        Case("one 100 B record a request", record_batch(100, 1), small, 6.0, True),
        Case("16 KB batches of 1 KB", batch_filling(1_000, 16_384), medium, 1.5, False),
        Case("16 KB batches of 100 B", batch_filling(100, 16_384), medium, None, False),
        Case("900 KB batches of 1 KB", batch_filling(1_000, 900_000), large, 1.0, False),
    ]


def run(arena: Arena) -> Report:
    with arena.brokers() as brokers:
        return Report(TITLE, [_figure(arena, brokers, case) for case in cases(arena)])


def _figure(arena: Arena, brokers: Sequence[BrokerProcess], case: Case) -> Figure:
    for broker in brokers:
        for _ in range(2):
            _round(broker, case)
    rounds = alternate(brokers, arena.size.rounds, lambda broker: [_round(broker, case)])
    return Figure(
        case.label,
        case.unit,
        best(rounds, 0, higher=True),
        higher_is_better=True,
        target=case.target,
        client_alone=_client_alone(brokers[0], case),
    )


def _round(broker: BrokerProcess, case: Case) -> Sample:
    with broker.connect() as client:
        client.create_topic(TOPIC)
        sample = with_broker_cpu(broker, lambda: _produce(client, case))
        client.delete_topic(TOPIC)
    return sample


def _produce(client: RawClient, case: Case) -> Sample:
    result = client.produce(TOPIC, case.batch, case.count, in_flight=IN_FLIGHT)
    return Sample(case.value(result), result.client_busy)


def _client_alone(broker: BrokerProcess, case: Case) -> float:
    request = wire.produce_request("bench-null", 0, case.batch.data)
    with broker.connect() as client:
        client.create_topic("bench-null")
        answer = client.ask(request)
        client.delete_topic("bench-null")
    with null_server(len(request), answer) as port, RawClient(port) as client:
        result, _ = client.pump(request, len(answer), case.count, IN_FLIGHT, len(case.batch.data))
    return case.value(result)
