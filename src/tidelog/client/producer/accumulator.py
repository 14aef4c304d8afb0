"""The record accumulator: records gather here in batches, one open batch for each partition.

`append` is called for every record, from the event loop or from any thread; everything else is
called by the sender on the event loop. One lock guards it all, the transaction manager included.

    append -> the queue of the partition -> ready -> drain -> in flight -> complete
                         ^                                       |
                         +------------- put back ----------------+

A batch is due when it is full or its partition has another one behind it, when `linger.ms` are
over, when somebody waits for memory or for a flush, and when a transaction ends. A batch that
failed goes back to its place in the queue and waits for its backoff, unless the partition has
another leader by now. A batch that takes long to compress waits, first in its queue, until a thread
has done it (compression_threads.py). Every batch is done within `delivery.timeout.ms` of its
creation, in the queue or in flight.

The time is an argument everywhere, in seconds of a monotonic clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client.errors import (
    ClientError,
    Closed,
    InvalidRow,
    MessageTooLarge,
    RequestTimedOut,
    refused,
)
from tidelog.client.network.backoff import Backoff
from tidelog.client.producer.batch import (
    RECORD_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES_MAX,
    EncodedRecords,
    ProducerBatch,
)
from tidelog.client.producer.buffer_pool import BufferPool
from tidelog.client.producer.checked_record import (
    as_bytes,
    bytes_alone,
    checked_headers,
    require_timestamp,
)
from tidelog.client.producer.delivery import Delivery, OnDelivery
from tidelog.client.producer.partitioners import (
    Partitioner,
    PartitionLoads,
    StickyPartitioner,
    TopicPartitions,
    partition_for_key,
)
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.record.batch import HEADER_SIZE, Codec
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.network.metadata import LeaderAndEpoch
    from tidelog.client.producer.checked_record import Headers
    from tidelog.client.producer.compression_threads import CompressionThreads
    from tidelog.client.producer.transaction_manager import TransactionManager
    from tidelog.clock import Clock

_NEVER_ALLOWED: Final = -2  # a token that TransactionManager.send_token never has
_FOREVER: Final = float("inf")


class AccumulatorSettings(NamedTuple):
    """What the configuration says, in the units used here."""

    batch_bytes: int
    linger_s: float
    delivery_timeout_s: float
    buffer_bytes: int
    request_bytes_max: int
    retry_backoff: Backoff
    is_adaptive: bool = True
    availability_timeout_s: float = 0.0
    hashes_keys: bool = True
    codec: Codec = Codec.NONE
    level: int | None = None


class NoMemory(Exception):
    """There is no room in buffer.memory for the batch that a record needs."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class PartitionQueue:
    __slots__ = ("batches", "is_muted", "last_batch", "partition", "token")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.last_batch: ProducerBatch | None = None  # the last one while records may be appended
        self.is_muted = False  # a batch is in flight and no other may overtake it
        self.token = _NEVER_ALLOWED  # the transaction that the partition is known to be part of


class TopicRecords:
    """The queues of one topic. `partitions` is None while nobody knows them."""

    __slots__ = ("name", "partitions", "queues", "sticky", "used_at")

    def __init__(self, name: str, batch_bytes: int) -> None:
        self.name = name
        self.partitions: TopicPartitions | None = None
        self.queues: dict[int, PartitionQueue] = {}
        self.sticky = StickyPartitioner(batch_bytes)
        self.used_at = 0.0


class ReadyCheck(NamedTuple):
    nodes: set[int]  # that have something to send
    next_check_s: float  # until another may have; infinite if nothing waits
    unknown_leaders: set[str]  # topics that wait for a leader


class RecordAccumulator:
    def __init__(
        self,
        settings: AccumulatorSettings,
        *,
        transactions: TransactionManager | None = None,
        partitioner: Partitioner | None = None,
        compression_threads: CompressionThreads | None = None,
        leader_or_none: Callable[[TopicPartition], LeaderAndEpoch | None],
        on_news: Callable[[], object],
        clock: Clock,
    ) -> None:
        """`on_news` is called, with the lock held, when a batch is begun or has become due. Without
        `compression_threads`, every batch is compressed when it is drained."""
        self.lock = RLock()
        self.settings = settings
        self.pool = BufferPool(settings.buffer_bytes)
        self.is_closed = False
        # Room taken by the batches in the queues: what the sender is behind, for whoever wants to
        # let it catch up.
        self.undrained_bytes = 0
        self.incomplete: dict[ProducerBatch, None] = {}  # the first to expire first
        self._transactions = transactions
        self._partitioner = partitioner
        self._compression_threads = compression_threads
        self._leader_or_none = leader_or_none
        self._on_news = on_news
        self._monotonic = clock.monotonic
        # The system's clock is asked without a call in between, for it is asked for every record.
        self._time_ns = (
            time.time_ns if isinstance(clock, SystemClock) else lambda: clock.time_ms() * 1_000_000
        )
        self._batch_bytes = settings.batch_bytes
        # A record up to here surely fits into max.request.size and buffer.memory.
        smallest_limit = min(settings.request_bytes_max, settings.buffer_bytes)
        self._record_bytes_max = smallest_limit - HEADER_SIZE - RECORD_OVERHEAD_BYTES_MAX
        self._hashes_keys = settings.hashes_keys
        self._topics: dict[str, TopicRecords] = {}
        self._waiting: dict[TopicPartition, PartitionQueue] = {}  # queues that are not empty
        self._flushes = 0
        self._node_times: dict[int, tuple[float, float]] = {}  # had data, could take it
        self._callbacks_due: list[ProducerBatch] = []
        self._not_compressed: list[tuple[ProducerBatch, ClientError]] = []

    # Topics

    def topic_or_none(self, name: str) -> TopicRecords | None:
        return self._topics.get(name)

    def topics(self) -> list[str]:
        return list(self._topics)

    def set_partitions(self, name: str, partitions: TopicPartitions | None) -> None:
        with self.lock:
            if self.is_closed:
                return
            topic = self._topics.get(name)
            if topic is None:
                if partitions is None:
                    return
                topic = self._topics[name] = TopicRecords(name, self._batch_bytes)
                topic.used_at = self._monotonic()
            topic.partitions = partitions
            if partitions is not None and topic.sticky.partition >= partitions.total:
                topic.sticky.partition = -1  # made anew with fewer partitions

    def forget_idle_topics(self, unused_since: float) -> list[str]:
        """Those without batches that nobody has sent to since then."""
        with self.lock:
            idle = [
                topic.name
                for topic in self._topics.values()
                if topic.used_at < unused_since
                and not any(queue.batches for queue in topic.queues.values())
            ]
            for name in idle:
                del self._topics[name]
        return idle

    # Appending

    def append(
        self,
        name: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
        reserved_bytes: int = 0,
    ) -> Delivery | None:
        """None if the partitions of the topic, or this one, are not known.

        Raises NoMemory where there is none; the caller waits for it and passes what it was granted
        as `reserved_bytes`. From any thread. This is the path of every record, so it is one piece.
        """
        topic = self._topics.get(name)
        if topic is None or (partitions := topic.partitions) is None:
            return None
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            if type(value) is not bytes:
                value = as_bytes("value", value)
            size += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = as_bytes("key", key)
            size += len(key)
        pairs: Sequence[tuple[str, bytes | None]] = ()
        if headers:
            pairs, headers_bytes = checked_headers(headers)
            size += headers_bytes
        if timestamp is None:
            timestamp = self._time_ns() // 1_000_000
        else:
            require_timestamp(timestamp)
        if partition is None:
            if key is not None or self._partitioner is not None:
                partition = self._chosen_partition(name, key, value, partitions)
        elif partition >= partitions.total:
            return None
        sticky = topic.sticky if partition is None else None
        with self.lock:
            queue = topic.queues.get(topic.sticky.partition if partition is None else partition)
            if queue is None:
                queue = self._new_queue(topic, partition, partitions)
            if self._transactions is not None and queue.token != self._transactions.send_token:
                self._transactions.maybe_add_partition(queue.partition)
                queue.token = self._transactions.send_token
            batch = queue.last_batch
            if batch is None or batch.size + size > batch.size_max or size > self._record_bytes_max:
                record = (key, value, pairs)
                batch = self._begin_batch(topic, queue, record, size, reserved_bytes)
            elif reserved_bytes:
                self.pool.give_back(reserved_bytes)
            records = batch.records
            index = len(records)
            records.append((key, value, pairs, timestamp))
            batch.size += size
            if on_delivery is not None:
                batch.callbacks.append((index, timestamp, on_delivery))
            if sticky is not None:
                sticky.produced_bytes += size
                if sticky.produced_bytes >= self._batch_bytes and sticky.must_switch(
                    queue.last_batch is None
                ):
                    self._pick_sticky(topic, partitions)
        return Delivery((batch, index, timestamp))

    def _chosen_partition(
        self, name: str, key: bytes | None, value: bytes | None, partitions: TopicPartitions
    ) -> int | None:
        """None for the sticky one. Without the lock: the application's partitioner may be slow."""
        if self._partitioner is not None:
            return self._partitioner(name, key, value, partitions)
        if key is not None and self._hashes_keys:
            return partition_for_key(key, partitions.total)
        return None

    def _pick_sticky(self, topic: TopicRecords, partitions: TopicPartitions) -> int:
        """The next one; its queue is there afterwards."""
        partition = topic.sticky.pick(partitions, self._loads_of(topic, partitions))
        if partition not in topic.queues:
            topic.queues[partition] = PartitionQueue(TopicPartition(topic.name, partition))
        return partition

    def _new_queue(
        self, topic: TopicRecords, partition: int | None, partitions: TopicPartitions
    ) -> PartitionQueue:
        if partition is None:
            return topic.queues[self._pick_sticky(topic, partitions)]
        if not 0 <= partition < partitions.total:
            raise InvalidRow(
                f"partition {partition} of topic {topic.name} is not there: it has partitions 0 to "
                f"{partitions.total - 1}"
            )
        queue = topic.queues[partition] = PartitionQueue(TopicPartition(topic.name, partition))
        return queue

    def _begin_batch(
        self,
        topic: TopicRecords,
        queue: PartitionQueue,
        record: tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]],
        size: int,
        reserved_bytes: int,
    ) -> ProducerBatch:
        """A new batch behind the others, which takes no less than this record."""
        if self.is_closed:
            raise Closed("the producer is closed")
        if size > self._record_bytes_max:
            self._require_sendable(queue.partition, bytes_alone(*record))
        alone_bytes = HEADER_SIZE + size + RECORD_OVERHEAD_BYTES_MAX
        size_max = max(self._batch_bytes, alone_bytes)
        needed_bytes = min(size_max, self.pool.total_bytes)
        self._close_last_batch(queue)
        if reserved_bytes < needed_bytes:
            if not self.pool.take(needed_bytes - reserved_bytes):
                self._on_news()
                raise NoMemory(needed_bytes)
            reserved_bytes = needed_bytes
        now = self._monotonic()
        batch = ProducerBatch(
            queue.partition,
            size_max=size_max,
            reserved_bytes=reserved_bytes,
            created_at=now,
            deadline=now + self.settings.delivery_timeout_s,
        )
        topic.used_at = now
        self._enqueue(queue, batch)
        queue.last_batch = batch if size_max == self._batch_bytes else None
        return batch

    def _close_last_batch(self, queue: PartitionQueue) -> None:
        """Closes the batch that took records, so that a thread may begin to compress it early."""
        batch, queue.last_batch = queue.last_batch, None
        if batch is not None:
            batch.close()
            self._maybe_begin_compression(batch)

    def _maybe_begin_compression(self, batch: ProducerBatch) -> bool:
        """Hands a batch that takes long to compress to a thread. Returns whether a thread has it
        now."""
        threads = self._compression_threads
        if threads is None or batch.data is not None or not threads.are_for(batch.size):
            return False
        batch.begin_compression(threads)
        return True

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.batches.append(batch)
        self._waiting.setdefault(queue.partition, queue)
        self.incomplete[batch] = None
        self.undrained_bytes += batch.size_max
        if len(queue.batches) <= 2:
            # A first batch will be due; a second one makes the first due. More change nothing.
            self._on_news()

    def _require_sendable(self, partition: TopicPartition, size: int) -> None:
        for limit, key in (
            (self.settings.request_bytes_max, "max.request.size"),
            (self.pool.total_bytes, "buffer.memory"),
        ):
            if size > limit:
                raise MessageTooLarge(
                    f"a record for {partition} takes up to {size} bytes, more than {key}={limit}",
                    ErrorCode.MESSAGE_TOO_LARGE,
                )

    def append_encoded(
        self,
        partition: TopicPartition,
        encoded: EncodedRecords,
        records_count: int,
        *,
        is_granted: bool = False,
    ) -> ProducerBatch:
        """A whole batch of columns behind the others. Raises NoMemory unless room was granted."""
        size = len(encoded[0])
        with self.lock:
            if self.is_closed:
                raise Closed("the producer is closed")
            topic = self._topics.get(partition.topic)
            if topic is None or (partitions := topic.partitions) is None:
                raise refused(f"topic {partition.topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            queue = topic.queues.get(partition.partition)
            if queue is None:
                queue = self._new_queue(topic, partition.partition, partitions)
            if records_count == 1:
                self._require_sendable(partition, size)
            if self._transactions is not None:
                self._transactions.maybe_add_partition(partition)
            reserved_bytes = min(size, self.pool.total_bytes)
            if not is_granted and not self.pool.take(reserved_bytes):
                raise NoMemory(reserved_bytes)
            self._close_last_batch(queue)
            now = self._monotonic()
            batch = ProducerBatch(
                partition,
                size_max=size,
                reserved_bytes=reserved_bytes,
                created_at=now,
                deadline=now + self.settings.delivery_timeout_s,
            )
            batch.hold(encoded, records_count)
            self._maybe_begin_compression(batch)
            topic.used_at = now
            self._enqueue(queue, batch)
        return batch

    def _loads_of(self, topic: TopicRecords, partitions: TopicPartitions) -> PartitionLoads | None:
        """None until every partition has had a batch, because a missing queue has no length."""
        if not self.settings.is_adaptive or len(topic.queues) < max(2, partitions.total):
            return None
        names: list[int] = []
        sizes: list[int] = []
        for partition, queue in topic.queues.items():
            leader = self._leader_or_none(queue.partition)
            if leader is not None and not self._is_slow(leader.leader_id):
                names.append(partition)
                sizes.append(len(queue.batches))
        return PartitionLoads(names, sizes, left_out=len(names) < len(topic.queues))

    def _is_slow(self, node_id: int) -> bool:
        limit_s = self.settings.availability_timeout_s
        if not limit_s or node_id not in self._node_times:
            return False
        had_data_at, could_take_at = self._node_times[node_id]
        return had_data_at - could_take_at > limit_s

    def note_node(self, node_id: int, now: float, *, can_take: bool) -> None:
        """There is something to send to this node, which it can take now or cannot."""
        if self.settings.availability_timeout_s:
            _, could_take_at = self._node_times.get(node_id, (now, now))
            self._node_times[node_id] = (now, now if can_take else could_take_at)

    # Sending

    @property
    def has_incomplete(self) -> bool:
        return bool(self.incomplete)

    def ready(self, now: float) -> ReadyCheck:
        nodes: set[int] = set()
        unknown_leaders: set[str] = set()
        next_check_at = _FOREVER
        are_all_due = self._are_all_due()
        linger_s = self.settings.linger_s
        for partition, queue in self._waiting.items():
            leader = self._leader_or_none(partition)
            if leader is None:
                unknown_leaders.add(partition.topic)
                continue
            if queue.is_muted or leader.leader_id in nodes:
                continue
            batch = queue.batches[0]
            if batch.is_compressing:
                continue
            if self._is_backing_off(batch, leader, now):
                next_check_at = min(next_check_at, batch.retry_at)
            elif (
                are_all_due
                or batch.is_closed
                or len(queue.batches) > 1
                or batch.created_at + linger_s <= now
            ):
                nodes.add(leader.leader_id)
            else:
                next_check_at = min(next_check_at, batch.created_at + linger_s)
        return ReadyCheck(nodes, max(0.0, next_check_at - now), unknown_leaders)

    def _are_all_due(self) -> bool:
        return (
            self.is_closed
            or self._flushes > 0
            or self.pool.is_exhausted
            or (self._transactions is not None and self._transactions.is_completing)
        )

    def _is_backing_off(self, batch: ProducerBatch, leader: LeaderAndEpoch, now: float) -> bool:
        if now >= batch.retry_at:
            return False
        has_moved = leader.leader_epoch > batch.leader_epoch_when_sent or (
            leader.leader_epoch < 0 and leader.leader_id != batch.leader_id_when_sent
        )
        return not has_moved

    def drain(self, node_ids: Iterable[int], now: float) -> dict[int, list[ProducerBatch]]:
        """For each node the batches of one request: at most one a partition, encoded, and with
        their sequences. Partitions that had to stay behind come first the next time.
        """
        drained: dict[int, list[ProducerBatch]] = {node_id: [] for node_id in node_ids}
        left_bytes = dict.fromkeys(drained, self.settings.request_bytes_max)
        is_full: set[int] = set()
        for partition, queue in list(self._waiting.items()):
            leader = self._leader_or_none(partition)
            if leader is None or queue.is_muted:
                continue
            node_id = leader.leader_id
            if node_id not in drained or node_id in is_full:
                continue
            batch = queue.batches[0]
            if batch.is_compressing or self._is_backing_off(batch, leader, now):
                continue
            if batch.compression is not None and not self._take_compressed(batch):
                continue
            if drained[node_id] and batch.size > left_bytes[node_id]:
                is_full.add(node_id)
                continue
            if self._transactions is not None and not self._transactions.may_send(batch):
                continue
            if self._maybe_begin_compression(batch):
                if queue.last_batch is batch:
                    queue.last_batch = None
                continue
            self._take(queue, batch, leader)
            left_bytes[node_id] -= batch.size
            drained[node_id].append(batch)
        return {node_id: batches for node_id, batches in drained.items() if batches}

    def _take_compressed(self, batch: ProducerBatch) -> bool:
        assert batch.compression is not None, batch
        problem = batch.compression.exception(timeout=0)
        if problem is None:
            batch.take_compressed()
            return True
        error = ClientError(f"{batch.records_count} records for {batch.partition}: {problem!r}")
        error.__cause__ = problem
        self._remove_from_queue(batch)
        self._not_compressed.append((batch, error))
        return False

    def take_not_compressed(self) -> list[tuple[ProducerBatch, ClientError]]:
        """Batches that could not be compressed, and why; the caller fails them."""
        taken, self._not_compressed = self._not_compressed, []
        return taken

    def _take(self, queue: PartitionQueue, batch: ProducerBatch, leader: LeaderAndEpoch) -> None:
        queue.batches.popleft()
        self.undrained_bytes -= batch.size_max
        if queue.last_batch is batch:
            queue.last_batch = None
        del self._waiting[queue.partition]
        if queue.batches:
            self._waiting[queue.partition] = queue
        batch.close()
        batch.leader_id_when_sent, batch.leader_epoch_when_sent = leader
        if self._transactions is not None:
            self._transactions.sequences.number(batch)
        batch.has_been_reset = False
        batch.encode(self.settings.codec, self.settings.level)

    def mute(self, partition: TopicPartition) -> None:
        self._queue_of(partition).is_muted = True

    def unmute(self, partition: TopicPartition) -> None:
        self._queue_of(partition).is_muted = False

    def _queue_of(self, partition: TopicPartition) -> PartitionQueue:
        topic = self._topics.get(partition.topic)
        if topic is None:
            topic = self._topics[partition.topic] = TopicRecords(partition.topic, self._batch_bytes)
        queue = topic.queues.get(partition.partition)
        if queue is None:
            queue = topic.queues[partition.partition] = PartitionQueue(partition)
        return queue

    # Batches that come back

    def put_back(self, batch: ProducerBatch, now: float) -> None:
        """To be sent again after its backoff, before everything that came later."""
        batch.attempts += 1
        batch.retry_at = now + self.settings.retry_backoff.wait_s(batch.attempts - 1)
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self._queue_of(batch.partition)
        place = 0
        if batch.order >= 0:
            for waiting in queue.batches:
                if not 0 <= waiting.order < batch.order:
                    break
                place += 1
        queue.batches.insert(place, batch)
        self.undrained_bytes += batch.size_max
        self._waiting.setdefault(batch.partition, queue)

    def split(self, batch: ProducerBatch) -> None:
        """Halves take the place of a batch that the broker finds too large."""
        halves = batch.split()
        if self._transactions is not None:
            self._transactions.sequences.split(batch, halves)
        self.incomplete.pop(batch, None)
        for half in reversed(halves):
            self.incomplete[half] = None
            self._insert(half)
        self.incomplete = dict.fromkeys(sorted(self.incomplete, key=_deadline_of))
        # The first half answers for the memory of both.
        halves[0].reserved_bytes = batch.reserved_bytes
        left = list(halves)

        def half_done(half: ProducerBatch) -> None:
            left.remove(half)
            if not left:
                batch.outcome.done(batch.first_error())

        for half in halves:
            half.outcome.when_done(lambda half=half: half_done(half))  # type: ignore[misc]

    # The end of batches

    @property
    def next_expiry(self) -> float:
        """When the next batch runs out of time, in the queue or in flight."""
        oldest = next(iter(self.incomplete), None)
        return _FOREVER if oldest is None else oldest.deadline

    def expired(self, now: float) -> list[ProducerBatch]:
        """Batches whose time is over, taken out of their queues; the caller fails them."""
        expired = []
        for batch in self.incomplete:
            if batch.deadline > now:
                break
            expired.append(batch)
        for batch in expired:
            self._remove_from_queue(batch)
        return expired

    def expiry_error(self, batch: ProducerBatch) -> RequestTimedOut:
        timeout_ms = round(self.settings.delivery_timeout_s * 1000)
        count = batch.records_count or len(batch.records)
        why = batch.last_problem or (
            "they could not be sent" if batch.data is None else "no answer came"
        )
        code = ErrorCode.NONE if batch.last_problem is None else batch.last_problem.code
        return RequestTimedOut(
            f"{count} records for {batch.partition} were not acknowledged within {timeout_ms} ms "
            f"(delivery.timeout.ms): {why}",
            code,
        )

    def _remove_from_queue(self, batch: ProducerBatch) -> None:
        queue = self._queue_of(batch.partition)
        if queue.last_batch is batch:
            queue.last_batch = None
        if batch in queue.batches:
            queue.batches.remove(batch)
            self.undrained_bytes -= batch.size_max
            if not queue.batches:
                self._waiting.pop(batch.partition, None)

    def complete(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> bool:
        """Returns False if the batch was done before."""
        return batch.succeed(base_offset, append_time_ms) and self._completed(batch)

    def fail(
        self,
        batch: ProducerBatch,
        error: ClientError,
        record_errors: dict[int, ClientError] | None = None,
    ) -> bool:
        return batch.fail(error, record_errors) and self._completed(batch)

    def _completed(self, batch: ProducerBatch) -> bool:
        self.incomplete.pop(batch, None)
        if batch.reserved_bytes:
            self.pool.give_back(batch.reserved_bytes)
            batch.reserved_bytes = 0
        if batch.callbacks:
            self._callbacks_due.append(batch)
        return True

    def fail_all(self, error: ClientError) -> None:
        for batch in list(self.incomplete):
            self._remove_from_queue(batch)
            self.fail(batch, error)

    def fail_unsent(self, error: ClientError) -> None:
        """Batches that were never sent; those that were may be written already."""
        for batch in list(self.incomplete):
            if not batch.has_sequence:
                self._remove_from_queue(batch)
                self.fail(batch, error)

    def take_callbacks_due(self) -> list[ProducerBatch]:
        due, self._callbacks_due = self._callbacks_due, []
        return due

    # Flush and close

    def begin_flush(self) -> list[ProducerBatch]:
        """Everything is due until `end_flush`; gives what has to be waited for."""
        with self.lock:
            self._flushes += 1
            self._on_news()
            return list(self.incomplete)

    def end_flush(self) -> None:
        with self.lock:
            self._flushes -= 1

    def close(self) -> None:
        """Takes no more records and makes all batches due."""
        with self.lock:
            self.is_closed = True
            for topic in self._topics.values():
                topic.partitions = None
            self._on_news()


def _deadline_of(batch: ProducerBatch) -> float:
    return batch.deadline
