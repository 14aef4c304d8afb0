"""The producer for asyncio.

    async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        delivery = await producer.send("greetings", b"hello", key=b"k")
        print((await delivery).offset)

`send` puts the record into a batch and returns. It waits only for the metadata of a topic that is
new to it and for room in buffer.memory, at most max.block.ms for both. Now and then it lets the
event loop run, so a program that does nothing but send does not starve the sender.

The blocking Producer stands on the same object. It appends to the accumulator in its caller's
thread and has the event loop do everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.client.consumer.offset_and_metadata import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    require_committable,
)
from tidelog.client.errors import (
    BufferExhausted,
    ClientError,
    Closed,
    IllegalState,
    InvalidRow,
    RequestTimedOut,
)
from tidelog.client.network.backoff import Backoff
from tidelog.client.network.cluster import Cluster
from tidelog.client.producer.accumulator import (
    AccumulatorSettings,
    NoMemory,
    RecordAccumulator,
)
from tidelog.client.producer.checked_record import Headers
from tidelog.client.producer.compression_threads import CompressionThreads
from tidelog.client.producer.delivery import (
    ArrowDelivery,
    Delivery,
    OnDelivery,
    Outcome,
    raised_anew,
)
from tidelog.client.producer.partitioners import (
    Partitioner,
    RoundRobinPartitioner,
    TopicPartitions,
)
from tidelog.client.producer.sender import Sender
from tidelog.client.producer.transaction_manager import TransactionManager
from tidelog.config.client import ProducerConfig
from tidelog.config.definition import INT_MAX
from tidelog.record.batch import Codec
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

    from tidelog.client.network.metadata import Metadata, PartitionView, TopicView
    from tidelog.client.producer.arrow_rows import ArrowRows
    from tidelog.client.producer.batch import EncodedRecords, ProducerBatch
    from tidelog.client.producer.transaction_requests import OpenTransaction
    from tidelog.client.tracing import ProducerSpans
    from tidelog.clock import Clock

Serializer: TypeAlias = Callable[[Any], bytes | None]

# Above so many bytes that the sender has not taken yet, `send` lets the event loop run.
YIELD_BYTES: Final = 64 * 1024

_CODECS: Final = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVEL_KEYS: Final = {
    Codec.GZIP: "compression.gzip.level",
    Codec.LZ4: "compression.lz4.level",
    Codec.ZSTD: "compression.zstd.level",
}


class AsyncProducer:
    """Belongs to the event loop of its first `await`. Close it, or use it with `async with`.

    `partitioner` is called for records that come without a partition, with topic, key, value and
    the topic's partitions; it overrides `partitioner.class`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | ProducerConfig | None = None,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        clock: Clock | None = None,
        **keywords: object,
    ) -> None:
        self.config = ProducerConfig.of(config, keywords)
        self._cluster = Cluster(self.config, clock=clock)
        self._clock = self._cluster.clock
        self._time_ms = self._clock.time_ms
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._spans: ProducerSpans | None = None
        if self.config.flag("tidelog.tracing"):
            from tidelog.client.tracing import ProducerSpans

            self._spans = ProducerSpans(self.config)
        self.prepares = any(
            each is not None for each in (key_serializer, value_serializer, self._spans)
        )
        self._max_block_s = self.config.seconds("max.block.ms")
        self.transactions = _transaction_manager(self.config)
        if partitioner is None and self.config.partitioner == "round-robin":
            partitioner = RoundRobinPartitioner()
        self._partitioner = partitioner
        settings = settings_of(self.config)
        self._compression_threads = CompressionThreads(
            settings.codec, settings.level, on_done=self._wake
        )
        self.accumulator = RecordAccumulator(
            settings,
            transactions=self.transactions,
            partitioner=partitioner,
            compression_threads=self._compression_threads,
            leader_or_none=self._cluster.metadata.leader_or_none,
            on_news=self._wake,
            clock=self._clock,
        )
        self.sender = Sender(self._cluster, self.accumulator, self.transactions, self.config)
        self._yield_above_bytes = YIELD_BYTES
        self._views: dict[str, TopicView | None] = {}
        self._is_started = False
        self._is_closed = False
        self._arrow_rows: ArrowRows | None = None
        self._cluster.metadata.add_listener(self._metadata_changed)

    async def __aenter__(self) -> AsyncProducer:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Starts the sender. The first call that needs it does this."""
        if not self._is_started:
            self._is_started = True
            self.sender.start()

    def _wake(self) -> None:
        self.sender.wake()

    # Records

    async def send(
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
        """Returns once the record is in a batch; the Delivery tells what became of it.

        `timestamp` is in milliseconds, now unless given. `on_delivery(metadata, error)` is called
        on the event loop when the record is acknowledged or has failed.
        """
        if self.prepares:
            value, key, headers, on_delivery = self.prepared(
                topic, value, key, headers, on_delivery
            )
        try:
            delivery = self.accumulator.append(
                topic, value, key, partition, timestamp, headers, on_delivery
            )
        except NoMemory:
            delivery = None
        except ClientError as problem:
            self.not_taken(problem)
            raise
        if delivery is None:
            return await self.send_when_possible(
                topic, value, key, partition, timestamp, headers, on_delivery
            )
        if self.accumulator.undrained_bytes > self._yield_above_bytes:
            await self._let_sender_work()
        return delivery

    async def _let_sender_work(self) -> None:
        """Lets the event loop run once, and not again before another batch is begun."""
        await asyncio.sleep(0)
        behind_bytes = self.accumulator.undrained_bytes
        batch_bytes = self.accumulator.settings.batch_bytes
        self._yield_above_bytes = max(YIELD_BYTES, behind_bytes + batch_bytes - 1)

    def prepared(
        self, topic: str, value: Any, key: Any, headers: Headers, on_delivery: OnDelivery | None
    ) -> tuple[Any, Any, Headers, OnDelivery | None]:
        """As the accumulator takes them, where there are serializers or spans."""
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._spans is not None:
            headers, on_delivery = self._spans.begin(topic, value, headers, on_delivery)
        return value, key, headers, on_delivery

    async def send_when_possible(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """Waits for what `append` did not find, at most max.block.ms."""
        self.start()
        try:
            return await self._send_within_block_time(
                topic, value, key, partition, timestamp, headers, on_delivery
            )
        except ClientError as problem:
            self.not_taken(problem)
            raise

    def not_taken(self, problem: ClientError, *, are_others_taken: bool = False) -> None:
        """A record that the application wanted in its transaction will not be there."""
        if self.transactions is not None:
            with self.accumulator.lock:
                self.transactions.records_not_taken(problem, are_others_taken=are_others_taken)

    async def _send_within_block_time(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        if partition is not None and partition < 0:
            raise InvalidRow(f"partition {partition} of topic {topic}: there is no such partition")
        deadline = self._clock.monotonic() + self._max_block_s
        reserved_bytes = 0
        while True:
            self._require_open()
            try:
                delivery = self.accumulator.append(
                    topic, value, key, partition, timestamp, headers, on_delivery, reserved_bytes
                )
            except NoMemory as problem:
                assert not reserved_bytes, reserved_bytes
                reserved_bytes = await self._wait_for_memory(problem.size, deadline)
                continue
            except BaseException:
                self._give_back(reserved_bytes)
                raise
            if delivery is not None:
                return delivery
            self._give_back(reserved_bytes)
            reserved_bytes = 0
            await self._wait_for_partition(topic, partition, deadline)

    def _give_back(self, reserved_bytes: int) -> None:
        if reserved_bytes:
            with self.accumulator.lock:
                self.accumulator.pool.give_back(reserved_bytes)

    async def _wait_for_memory(self, size: int, deadline: float) -> int:
        granted = Outcome()
        with self.accumulator.lock:
            request = self.accumulator.pool.stand_in_line(size, granted.done)
        self._wake()
        left_s = max(0.0, deadline - self._clock.monotonic())
        try:
            is_granted = await granted.wait(left_s)
        except BaseException:
            with self.accumulator.lock:
                self.accumulator.pool.leave_line(request)
            raise
        if not is_granted:
            with self.accumulator.lock:
                self.accumulator.pool.leave_line(request)
            raise BufferExhausted(
                f"no room for {size} bytes in buffer.memory={self.accumulator.pool.total_bytes} "
                f"within {round(self._max_block_s * 1000)} ms (max.block.ms)"
            )
        return size

    # Topics

    async def partitions_for(self, topic: str) -> dict[int, PartitionView]:
        """The partitions of a topic, from memory where they are known."""
        self._require_open()
        self.start()
        view = await self._cluster.topic(topic, may_create=True)
        self._know(view)
        return dict(view.partitions)

    async def _wait_for_partition(
        self, name: str, partition: int | None, deadline: float
    ) -> TopicView:
        left_s: float | None = max(0.0, deadline - self._clock.monotonic())
        if left_s is not None and left_s > self._max_block_s - 0.01:
            left_s = None  # all of max.block.ms, which errors then name
        patience = self._cluster.patience(f"metadata of topic {name}", "max.block.ms", left_s)
        view = await self._cluster.topic(name, may_create=True, timeout_s=left_s)
        while partition is not None and partition not in view.partitions:
            problem = RequestTimedOut(
                f"partition {partition} of topic {name} is not there: it has partitions 0 to "
                f"{len(view.partitions) - 1}"
            )
            await patience.wait_after(problem)
            await patience.within(self._cluster.refresh([name], may_create=True), problem)
            view = await self._cluster.topic(name, may_create=True, timeout_s=patience.left_s)
        self._know(view)
        return view

    def _know(self, view: TopicView) -> None:
        is_new = view.name not in self._views
        self._views[view.name] = view
        self.accumulator.set_partitions(view.name, partitions_of(view))
        if is_new:
            self._cluster.watch(set(self._views), may_create=True)

    def _metadata_changed(self, metadata: Metadata) -> None:
        for name, known in self._views.items():
            view = metadata.topics.get(name)
            if view is not known and not self._is_closed:
                self._views[name] = view
                exists = view is not None and view.exists
                # A topic that is gone is asked for again by the next `send`.
                partitions = partitions_of(view) if view is not None and exists else None
                self.accumulator.set_partitions(name, partitions)
        self._forget_idle_topics()
        self._wake()

    def _forget_idle_topics(self) -> None:
        unused_since = self._clock.monotonic() - self.config.seconds("metadata.max.idle.ms")
        idle = self.accumulator.forget_idle_topics(unused_since)
        for name in idle:
            self._views.pop(name, None)
        if idle and not self._is_closed:
            self._cluster.watch(set(self._views), may_create=True)

    # Columns

    async def send_arrow(self, table: Any, topic: str | None = None) -> ArrowDelivery:
        """Sends the rows of an Arrow table or record batch; the columns are those of
        tidelog.client.columns.produce_columns. `topic` comes before a column of that name.
        """
        self._require_open()
        self.start()
        if self._arrow_rows is None:
            from tidelog.client.producer.arrow_rows import ArrowRows

            self._arrow_rows = ArrowRows(self.config, self._partitioner)
        batches: list[ProducerBatch] = []
        try:
            await self._append_rows(batches, self._arrow_rows, table, topic)
        except ClientError as problem:
            self.not_taken(problem, are_others_taken=bool(batches))
            raise
        return ArrowDelivery(batches)

    async def _append_rows(
        self, batches: list[ProducerBatch], arrow_rows: ArrowRows, table: Any, topic: str | None
    ) -> None:
        for name, rows in arrow_rows.by_topic(table, topic):
            deadline = self._clock.monotonic() + self._max_block_s
            view = await self._wait_for_partition(name, None, deadline)
            for partition, encoded, count in arrow_rows.encoded(view, rows, self._time_ms()):
                batches.append(await self._append_encoded(partition, encoded, count))

    async def _append_encoded(
        self, partition: TopicPartition, encoded: EncodedRecords, records_count: int
    ) -> ProducerBatch:
        self._require_open()
        try:
            batch = self.accumulator.append_encoded(partition, encoded, records_count)
        except NoMemory as problem:
            deadline = self._clock.monotonic() + self._max_block_s
            granted_bytes = await self._wait_for_memory(problem.size, deadline)
            try:
                self._require_open()
                return self.accumulator.append_encoded(
                    partition, encoded, records_count, is_granted=True
                )
            except BaseException:
                self._give_back(granted_bytes)
                raise
        if self.accumulator.undrained_bytes > YIELD_BYTES:
            await asyncio.sleep(0)
        return batch

    # Flush and close

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Waits until every record sent before is acknowledged or has failed."""
        batches = self.accumulator.begin_flush()
        try:
            async with asyncio.timeout(timeout):
                for batch in batches:
                    await batch.outcome.wait()
        except TimeoutError:
            left = sum(not batch.outcome.is_done for batch in batches)
            raise RequestTimedOut(
                f"flush: {left} batches are not acknowledged after {timeout} s"
            ) from None
        finally:
            self.accumulator.end_flush()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Sends what there is, at most `timeout` seconds; what is left then fails.

        An open transaction is aborted. Without a timeout, delivery.timeout.ms bounds it.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.accumulator.close()
        limit_s = self.config.seconds("delivery.timeout.ms") if timeout is None else timeout
        try:
            if self._is_started and limit_s > 0:
                async with asyncio.timeout(limit_s):
                    await self._finish_work()
        except TimeoutError:
            pass
        finally:
            await self.sender.stop()
            self._compression_threads.close()
            await self._cluster.close()

    async def _finish_work(self) -> None:
        await self.sender.idle()
        transactions = self.transactions
        if transactions is None or not transactions.has_ongoing_transaction:
            return
        with self.accumulator.lock:
            if not transactions.is_completing:
                transactions.abandon_pending_call()
                transactions.abort()
        await self.sender.idle()

    def _require_open(self) -> None:
        if self._is_closed:
            raise Closed("the producer is closed")

    # Transactions

    async def init_transactions(self) -> None:
        """Before the first transaction: fences other producers with this transactional.id and
        finishes what they left open."""
        await self._transact(lambda transactions: transactions.initialize())

    def begin_transaction(self) -> None:
        self._require_open()
        with self.accumulator.lock:
            self._must_have_transactions().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commits a consumer's offsets with the transaction; see Consumer.group_metadata."""
        if isinstance(group_metadata, str):
            group_metadata = ConsumerGroupMetadata(group_metadata)
        group = group_metadata
        committed = {
            TopicPartition(*partition): (
                OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            )
            for partition, offset in offsets.items()
        }
        require_committable(committed)
        if committed:
            await self._transact(lambda transactions: transactions.send_offsets(committed, group))

    async def commit_transaction(self) -> None:
        """Waits for all records of the transaction. If one was not written this raises, and the
        transaction must be aborted."""
        await self._transact(lambda transactions: transactions.commit())

    async def abort_transaction(self) -> None:
        await self._transact(lambda transactions: transactions.abort())

    async def hand_over_transaction(self) -> OpenTransaction:
        """Waits for all records of the transaction and leaves it open, for another process to end
        (AsyncAdmin.end_transactions). Closing the producer does not abort it then. The next
        transaction needs `init_transactions`, which would abort this one if nobody has ended it.
        If a record was not written this raises, and the transaction must be aborted.
        """
        self._require_open()
        transactions = self._must_have_transactions()
        await self.flush()
        with self.accumulator.lock:
            return transactions.hand_over()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncProducer]:
        """Commits at the end, aborts if the block raises."""
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            await self.abort_if_possible()
            raise

    async def abort_if_possible(self) -> None:
        """Aborts unless there is nothing to abort, or the error is one that no abort mends."""
        transactions = self._must_have_transactions()
        if transactions.has_fatal_error or not transactions.has_ongoing_transaction:
            return
        with self.accumulator.lock:
            transactions.abandon_pending_call()
        if not transactions.is_completing:
            await self.abort_transaction()

    def _must_have_transactions(self) -> TransactionManager:
        if self.transactions is None or not self.transactions.is_transactional:
            raise IllegalState("transactions need transactional.id, which is not set")
        return self.transactions

    async def _transact(self, begin: Callable[[TransactionManager], Outcome]) -> None:
        self._require_open()
        self.start()
        transactions = self._must_have_transactions()
        with self.accumulator.lock:
            outcome = begin(transactions)
        self._wake()
        if not await outcome.wait(self._max_block_s):
            raise RequestTimedOut(
                f"{transactions} got no answer within {round(self._max_block_s * 1000)} ms "
                "(max.block.ms); call the same method again to go on waiting"
            )
        with self.accumulator.lock:
            transactions.finished(outcome)
        if outcome.error is not None:
            raise raised_anew(outcome.error)


def settings_of(config: ProducerConfig) -> AccumulatorSettings:
    codec = _CODECS[config.text("compression.type")]
    level_key = _LEVEL_KEYS.get(codec)
    return AccumulatorSettings(
        batch_bytes=max(1, config.integer("batch.size")),
        linger_s=config.seconds("linger.ms"),
        delivery_timeout_s=config.seconds("delivery.timeout.ms"),
        buffer_bytes=config.integer("buffer.memory"),
        request_bytes_max=config.integer("max.request.size"),
        retry_backoff=Backoff.of(config, "retry.backoff.ms"),
        is_adaptive=config.flag("partitioner.adaptive.partitioning.enable"),
        availability_timeout_s=config.seconds("partitioner.availability.timeout.ms"),
        hashes_keys=config.partitioner == "default" and not config.flag("partitioner.ignore.keys"),
        codec=codec,
        level=None if level_key is None else config.integer(level_key),
    )


def _transaction_manager(config: ProducerConfig) -> TransactionManager | None:
    if not config.is_idempotent:
        return None
    transactional_id = config.text_or_none("transactional.id")
    timeout_ms = INT_MAX
    if transactional_id is not None:
        timeout_ms = config.integer("transaction.timeout.ms")
    return TransactionManager(transactional_id, timeout_ms)


def partitions_of(view: TopicView) -> TopicPartitions:
    led = [index for index, row in sorted(view.partitions.items()) if row.leader_id >= 0]
    return TopicPartitions(len(view.partitions), led)
