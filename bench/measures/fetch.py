"""One connection, Fetch of 1 MB after Fetch of 1 MB from a log that is in the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.null_server import null_server
from bench.peers import BrokerProcess
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.wire import Batch, batch_filling

TITLE = "one connection, Fetch of 1 MB, warm log"
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    topic: str
    batch: Batch
    batches: int  # in the log


def cases(arena: Arena) -> list[Case]:
    log_bytes = arena.size.of(200, 500) * 1_000_000
    small, large = batch_filling(1_000, 16_384), batch_filling(1_000, 900_000)
    return [
        Case("16 KB batches", "bench-fetch-16", small, log_bytes // len(small.data)),
        Case("900 KB batches", "bench-fetch-900", large, log_bytes // len(large.data)),
    ]


def run(arena: Arena) -> Report:
    with arena.brokers() as brokers:
        return Report(TITLE, [_figure(arena, brokers, case) for case in cases(arena)])


def _figure(arena: Arena, brokers: Sequence[BrokerProcess], case: Case) -> Figure:
    for broker in brokers:
        with broker.connect() as client:
            client.create_topic(case.topic)
            client.produce(case.topic, case.batch, case.batches)
        for _ in range(3):
            _round(broker, case)
    rounds = alternate(brokers, arena.size.rounds + 1, lambda broker: [_round(broker, case)])
    return Figure(
        case.label,
        "MB/s",
        best(rounds, 0, higher=True),
        higher_is_better=True,
        target=1.0,
        client_alone=_client_alone(brokers[0], case),
    )


def _round(broker: BrokerProcess, case: Case) -> Sample:
    with broker.connect() as client:
        return with_broker_cpu(broker, lambda: _fetch(client, case))


def _fetch(client: RawClient, case: Case) -> Sample:
    result = client.fetch_all(case.topic, case.batch, case.batches, max_bytes=MAX_BYTES)
    return Sample(result.megabytes_per_second, result.client_busy)


def _client_alone(broker: BrokerProcess, case: Case) -> float:
    request = wire.fetch_request(case.topic, 0, 0, max_bytes=MAX_BYTES)
    with broker.connect() as client:
        answer = client.ask(request)
    with null_server(len(request), answer) as port, RawClient(port) as client:
        result = client.fetch_all(case.topic, case.batch, case.batches, max_bytes=MAX_BYTES)
    return result.megabytes_per_second
