"""Produce to a plain tidelog and to another one in turn: what a part of the broker costs."""

from __future__ import annotations

from collections.abc import Callable

from bench.arena import Arena, Sample, with_broker_cpu
from bench.peers import BrokerProcess
from bench.raw_client import RawClient
from bench.table import Figure
from bench.wire import Batch

TOPIC = "bench-beside-plain"
AGAINST = "plain"  # the heading of the plain broker's column


class BesidePlain:
    """`connect` opens a connection to the other broker, ready to produce to TOPIC."""

    def __init__(
        self,
        arena: Arena,
        plain: BrokerProcess,
        other: BrokerProcess,
        connect: Callable[[], RawClient],
    ) -> None:
        self._rounds = arena.size.rounds
        self._plain = plain
        self._other = other
        self._connect = connect

    def figure(self, label: str, batch: Batch, count: int, target: float | None) -> Figure:
        """Requests a second of the best round; the first one warms both up."""
        self._round(batch, count)
        rounds = [self._round(batch, count) for _ in range(self._rounds)]
        plain, other = (
            max(some, key=lambda each: each.value) for some in zip(*rounds, strict=True)
        )
        values = {"kafka": plain, "tidelog": other}
        return Figure(label, "requests/s", values, higher_is_better=True, target=target)

    def _round(self, batch: Batch, count: int) -> tuple[Sample, Sample]:
        return (
            self._produced(self._plain, self._plain.connect, batch, count),
            self._produced(self._other, self._connect, batch, count),
        )

    def _produced(
        self, broker: BrokerProcess, connect: Callable[[], RawClient], batch: Batch, count: int
    ) -> Sample:
        def work() -> Sample:
            done = client.produce(TOPIC, batch, count)
            return Sample(done.requests_per_second, done.client_busy)

        with broker.connect() as owner, connect() as client:
            owner.create_topic(TOPIC)
            sample = with_broker_cpu(broker, work)
            owner.delete_topic(TOPIC)
        return sample
