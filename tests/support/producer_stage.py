"""An accumulator on a stage: a fake clock, leaders as the test says, no brokers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from tests.support.clock import FakeClock
from tidelog.client.network.backoff import Backoff
from tidelog.client.network.metadata import LeaderAndEpoch
from tidelog.client.producer.accumulator import AccumulatorSettings, RecordAccumulator
from tidelog.client.producer.batch import ProducerBatch
from tidelog.client.producer.checked_record import Headers
from tidelog.client.producer.compression_threads import CompressionThreads
from tidelog.client.producer.delivery import Delivery, OnDelivery
from tidelog.client.producer.partitioners import Partitioner, TopicPartitions
from tidelog.client.producer.sequences import ProducerIdAndEpoch
from tidelog.client.producer.transaction_manager import TransactionManager
from tidelog.types import TopicPartition

PARTITIONS = 3
T = TypeVar("T")


class HeldExecutor(Executor):
    """Does its work when the test says so."""

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []

    def submit(self, work: Callable[..., T], /, *arguments: object, **named: object) -> Future[T]:
        future: Future[T] = Future()

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*arguments, **named))
            except Exception as problem:  # noqa: BLE001
                future.set_exception(problem)

        self._held.append(do)
        return future

    def do_one(self) -> None:
        self._held.pop(0)()

    def do_last(self) -> None:
        self._held.pop()()

    @property
    def held(self) -> int:
        return len(self._held)


class ProducerStage:
    """Topic `t` has three partitions, led by the nodes 0, 1 and 2."""

    def __init__(
        self,
        *,
        transactions: TransactionManager | None = None,
        partitioner: Partitioner | None = None,
        executor: Executor | None = None,
        **settings: object,
    ) -> None:
        self.clock = FakeClock()
        self.news = 0
        self.leaders = {
            TopicPartition("t", index): LeaderAndEpoch(index, 0) for index in range(PARTITIONS)
        }
        self.transactions = transactions
        values: dict[str, object] = {
            "batch_bytes": 1000,
            "linger_s": 0.005,
            "delivery_timeout_s": 10.0,
            "buffer_bytes": 10_000,
            "request_bytes_max": 5000,
            "retry_backoff": Backoff(100, 1000),
            **settings,
        }
        accumulator_settings = AccumulatorSettings(**values)  # type: ignore[arg-type]
        codec, level = accumulator_settings.codec, accumulator_settings.level
        self.accumulator = RecordAccumulator(
            accumulator_settings,
            compression_threads=CompressionThreads(
                codec, level, on_done=self._noted, executor=executor
            ),
            transactions=transactions,
            partitioner=partitioner,
            leader_or_none=self.leaders.get,
            on_news=self._noted,
            clock=self.clock,
        )
        available = tuple(range(PARTITIONS))
        self.accumulator.set_partitions("t", TopicPartitions(PARTITIONS, available))

    def _noted(self) -> None:
        self.news += 1

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def append(
        self,
        value: bytes = b"v",
        *,
        partition: int | None = 0,
        key: bytes | None = None,
        on_delivery: OnDelivery | None = None,
        reserved_bytes: int = 0,
        headers: Headers = (),
    ) -> Delivery:
        delivery = self.accumulator.append(
            "t", value, key, partition, 1000, headers, on_delivery, reserved_bytes
        )
        assert delivery is not None
        return delivery

    def ready_nodes(self) -> set[int]:
        return self.accumulator.ready(self.now).nodes

    def drain(self, *node_ids: int) -> list[ProducerBatch]:
        drained = self.accumulator.drain(node_ids or tuple(range(PARTITIONS)), self.now)
        return [batch for batches in drained.values() for batch in batches]

    def drain_one(self) -> ProducerBatch:
        (batch,) = self.drain()
        return batch


def idempotent_manager(producer_id: int = 7, producer_epoch: int = 0) -> TransactionManager:
    """One that has its producer id."""
    manager = TransactionManager(None, 60_000)
    manager.maybe_renew_idempotent_producer()
    request = manager.next_request(has_incomplete_batches=False)
    assert request is not None
    manager.initialized(ProducerIdAndEpoch(producer_id, producer_epoch), is_bump=False)
    return manager
