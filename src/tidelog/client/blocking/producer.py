"""The producer with blocking calls, for scripts and threads.

    with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        delivery = producer.send("greetings", b"hello", key=b"k")
        print(delivery.result().offset)

`send` appends the record in the thread of its caller; an event loop in a thread of its own does
everything else. Both share one interpreter lock, and a thread that does nothing but send would keep
the event loop from it for 5 ms with every system call. So `send` pauses for a moment whenever the
sender is far behind.

Any number of threads may use one Producer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.errors import ClientError
from tidelog.client.producer.accumulator import NoMemory
from tidelog.client.producer.async_producer import AsyncProducer, Serializer
from tidelog.config.client import ProducerConfig

if TYPE_CHECKING:
    from types import TracebackType

    from tidelog.client.consumer.offset_and_metadata import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
    )
    from tidelog.client.network.metadata import PartitionView
    from tidelog.client.producer.checked_record import Headers
    from tidelog.client.producer.delivery import ArrowDelivery, Delivery, OnDelivery
    from tidelog.client.producer.partitioners import Partitioner
    from tidelog.client.producer.transaction_requests import OpenTransaction
    from tidelog.types import TopicPartition

T = TypeVar("T")

# How far the sender may be behind before `send` pauses, when it has caught up, and how long it gets
# for that. Where the brokers cannot take what is there, the pauses become rare: buffer.memory alone
# bounds what waits.
BEHIND_BYTES: Final = 512 * 1024
CAUGHT_UP_BYTES: Final = 128 * 1024
PAUSE_S: Final = 0.01


class Producer:
    """Close it, or use it with `with`. The arguments are those of AsyncProducer."""

    def __init__(
        self,
        config: Mapping[str, object] | ProducerConfig | None = None,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        **keywords: object,
    ) -> None:
        self._producer = AsyncProducer(
            ProducerConfig.of(config, keywords),
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
        )
        self._thread = LoopThread.shared()
        self._prepares = self._producer.prepares
        self._accumulator = self._producer.accumulator
        self._append = self._accumulator.append
        self._caught_up = threading.Lock()  # held until then; an interrupt can break an Event
        self._pause_above_bytes = BEHIND_BYTES
        self._producer.sender.on_turn = self._turned
        self._run(self._start)

    @property
    def config(self) -> ProducerConfig:
        return self._producer.config

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _start(self) -> None:
        self._producer.start()

    def _run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._thread.run(begin)

    # Records

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """As AsyncProducer.send. `on_delivery` is called in the thread of the event loop, where it
        may send more but must not wait."""
        if self._prepares:
            value, key, headers, on_delivery = self._producer.prepared(
                topic, value, key, headers, on_delivery
            )
        try:
            delivery = self._append(topic, value, key, partition, timestamp, headers, on_delivery)
        except NoMemory:
            delivery = None
        except ClientError as problem:
            self._producer.not_taken(problem)
            raise
        if delivery is None:
            return self._run(
                lambda: self._producer.send_when_possible(
                    topic, value, key, partition, timestamp, headers, on_delivery
                )
            )
        if self._accumulator.undrained_bytes > self._pause_above_bytes:
            self._let_sender_catch_up()
        return delivery

    def _let_sender_catch_up(self) -> None:
        if self._thread.is_current:
            return
        self._caught_up.acquire(blocking=False)
        if self._accumulator.undrained_bytes > CAUGHT_UP_BYTES:
            self._producer.sender.wake()
            self._caught_up.acquire(timeout=PAUSE_S)
        self._pause_above_bytes = self._accumulator.undrained_bytes + BEHIND_BYTES

    def _turned(self) -> None:
        """On the event loop, after every turn of the sender."""
        behind_bytes = self._accumulator.undrained_bytes
        if behind_bytes <= CAUGHT_UP_BYTES:
            self._pause_above_bytes = BEHIND_BYTES
            if self._caught_up.locked():  # only this thread ever releases it
                self._caught_up.release()

    def send_arrow(self, table: Any, topic: str | None = None) -> ArrowDelivery:
        """As AsyncProducer.send_arrow."""
        return self._run(lambda: self._producer.send_arrow(table, topic))

    def partitions_for(self, topic: str) -> dict[int, PartitionView]:
        return self._run(lambda: self._producer.partitions_for(topic))

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every record sent before is acknowledged or has failed."""
        self._run(lambda: self._producer.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Sends what there is, at most `timeout` seconds; what is left then fails."""
        self._run(lambda: self._producer.close(timeout))

    # Transactions

    def init_transactions(self) -> None:
        self._run(lambda: self._producer.init_transactions())

    def begin_transaction(self) -> None:
        self._producer.begin_transaction()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        self._run(lambda: self._producer.send_offsets_to_transaction(offsets, group_metadata))

    def commit_transaction(self) -> None:
        self._run(lambda: self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        self._run(lambda: self._producer.abort_transaction())

    def hand_over_transaction(self) -> OpenTransaction:
        return self._run(lambda: self._producer.hand_over_transaction())

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Commits at the end, aborts if the block raises."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            self._run(lambda: self._producer.abort_if_possible())
            raise
