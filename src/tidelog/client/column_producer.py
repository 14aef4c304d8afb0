"""Writing Arrow record batches, each row once and in order within its partition.

    with Cluster(config) as cluster, Producer(cluster, topic="orders") as producer:
        for batch in batches:
            producer.write(batch)
        last_offsets = producer.flush()

`write` splits the rows by partition, has the kernel encode them into batches of about `batch.size`,
and sends: up to five requests in flight to each leader, each with at most one batch a partition.
Answers are taken as they come. There are no threads: work is done inside `write` and `flush`, and
what `write` leaves unsent waits for the next call. It returns while batches are in flight, and
waits only when more than `buffer.memory` are unacknowledged.

What can become of a batch
    acknowledged, or known already (46)   done
    an error that may pass, no answer     metadata is refreshed; sent again, the same bytes
    too large (10), several records       two batches of half the rows take its place
    out of sequence (45)                  a batch before it failed, so it is sent again after that
                                          one; if there is none before it the broker lost records
    anything else                         the producer fails: this and every later call raises
Within `delivery.timeout.ms` of its encoding a batch is acknowledged or the producer fails; time
between calls does not count, since nothing is sent then.

With acks other than all there are no sequence numbers: a retry may write records twice.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidelog.client.backoff import retry_backoff
from tidelog.client.errors import (
    ClientError,
    MessageTooLarge,
    RequestTimedOut,
    UnreadableAnswer,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.backoff import Backoff, may_pass
from tidelog.client.network.versions import LAST_BY_NAME
from tidelog.client.columns.partitioner import TopicPartitioner
from tidelog.client.columns.produce_columns import (
    KernelColumns,
    ProduceRows,
    by_partition,
    rows_by_topic,
)
from tidelog.client.produce_queue import SEQUENCES, PartitionQueue, ProduceBatch
from tidelog.config.definition import INT_MAX
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, NO_SEQUENCE, BatchHeader, Codec
from tidelog.record.builder import finish_batch
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ZERO_UUID,
    TopicPartition,
    Uuid,
)

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection

_ZSTD_VERSION = 7
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

# What a request takes besides its batches, generously.
_REQUEST_OVERHEAD_BYTES = 512
_POLL_MAX_S = 1.0


class _Leader:
    """Requests in flight to one broker, oldest first."""

    __slots__ = ("backoff", "connection", "node_id", "requests", "retry_at", "topic_names")

    def __init__(self, node_id: int, backoff: Backoff) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.requests: list[list[ProduceBatch]] = []
        self.topic_names: dict[Uuid, str] = {}
        self.backoff = backoff
        self.retry_at = 0.0


class Producer:
    """Writes record batches; for one thread, as the cluster is."""

    def __init__(self, cluster: Cluster, *, topic: str | None = None) -> None:
        """`topic`, where given, comes before a column of that name."""
        config = cluster.config
        self.cluster = cluster
        self.config = config
        self.topic = topic
        self.unacknowledged_bytes = 0
        self._codec = _CODECS[config.text("compression.type")]
        level_key = _LEVEL_KEYS.get(self._codec)
        self._level = None if level_key is None else config.integer(level_key)
        self._acks = config.acks
        self._is_idempotent = config.is_idempotent
        self._in_flight_max = config.in_flight_max
        self._buffer_bytes_max = config.integer("buffer.memory")
        self._request_bytes_max = config.integer("max.request.size")
        batch_bytes_max = self._request_bytes_max - HEADER_SIZE - _REQUEST_OVERHEAD_BYTES
        self._batch_bytes = max(1, min(config.integer("batch.size"), batch_bytes_max))
        self._delivery_timeout_s = config.integer("delivery.timeout.ms") / 1000
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._failure: ClientError | None = None
        self._partitioners: dict[str, TopicPartitioner] = {}
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # Partitions with waiting batches, those that waited longest first.
        self._ready: dict[TopicPartition, None] = {}
        self._ready_bytes = 0
        self._leaders: dict[int, _Leader] = {}
        # Seconds between calls, and when the last call ended.
        self._idle_s = 0.0
        self._left_at = cluster.clock.monotonic()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc: object) -> None:
        try:
            if exc_type is None and self._failure is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """Gives the connections back; what is not flushed may be lost."""
        for leader in self._leaders.values():
            if leader.connection is not None:
                self.cluster.give_back(leader.connection)
                leader.connection = None

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Sends the rows; columns as in tidelog.client.columns.produce_columns."""
        self._resume()
        batches = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
        for rows in batches:
            for topic, of_topic in rows_by_topic(rows, self.topic):
                if of_topic.rows_count:
                    self._write_rows(topic, of_topic)
        self._work(wait=False)
        self._left_at = self.cluster.clock.monotonic()

    def flush(self) -> dict[TopicPartition, int]:
        """Waits until all is acknowledged; the offset of the last record of each partition."""
        self._resume()
        while any(not queue.is_empty for queue in self._queues.values()):
            self._work(wait=True)
        self._left_at = self.cluster.clock.monotonic()
        return {partition: queue.last_offset for partition, queue in self._queues.items()}

    def _resume(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._idle_s += self.cluster.clock.monotonic() - self._left_at

    def _active_s(self) -> float:
        """A clock that stands still between calls."""
        return self.cluster.clock.monotonic() - self._idle_s

    # Rows to batches

    def _write_rows(self, name: str, rows: ProduceRows) -> None:
        topic = self.cluster.writable_topic(name)
        partitioner = self._partitioners.get(name)
        if partitioner is None:
            made = TopicPartitioner(self.config.partitioner, self._batch_bytes)
            partitioner = self._partitioners[name] = made
        if self._is_idempotent and self._producer_id == NO_PRODUCER_ID:
            self._init_producer_id()
        partitions = partitioner.partitions(topic, rows.keys, rows.partitions, rows.average_bytes)
        order, runs = by_partition(partitions)
        columns = KernelColumns(rows, self.cluster.clock.time_ms(), order)
        for partition, start, stop in runs:
            queue = self._queue_of(TopicPartition(name, partition))
            for first, last in columns.cut(start, stop, self._batch_bytes):
                self._add_batch(queue, columns, first, last)

    def _queue_of(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def _add_batch(
        self, queue: PartitionQueue, columns: KernelColumns, start: int, stop: int
    ) -> None:
        place = queue.place_for(stop - start)
        data = self._finish(columns.encode(start, stop, HEADER_SIZE), stop - start, place)
        if stop - start == 1 and len(data) > self._request_bytes_max:
            self._fail(
                MessageTooLarge(
                    f"partition {queue.partition}: a record takes {len(data)} bytes, more than "
                    f"max.request.size={self._request_bytes_max}",
                    ErrorCode.MESSAGE_TOO_LARGE,
                )
            )
        deadline = self._active_s() + self._delivery_timeout_s
        queue.add(ProduceBatch(queue.partition, data, stop - start, place, deadline))
        self._ready.setdefault(queue.partition)
        self._ready_bytes += len(data)
        self.unacknowledged_bytes += len(data)
        if self._ready_bytes >= self._request_bytes_max:
            self._work(wait=False)
        while self.unacknowledged_bytes > self._buffer_bytes_max:
            self._work(wait=True)

    def _finish(
        self, records: tuple[bytearray, int, int], records_count: int, place: int
    ) -> bytearray:
        encoded, base_timestamp, max_timestamp = records
        return finish_batch(
            encoded,
            codec=self._codec,
            level=self._level,
            base_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            attributes=0,
            last_offset_delta=records_count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=place % SEQUENCES if self._is_idempotent else NO_SEQUENCE,
            records_count=records_count,
        )

    def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT_MAX)

        def ask(connection: Connection) -> InitProducerIdResponse:
            version = connection.versions.version(ApiKey.INIT_PRODUCER_ID)
            response = connection.call(request, version)
            assert isinstance(response, InitProducerIdResponse), response
            if response.error_code:
                raise refused("producer id (enable.idempotence=true)", response.error_code)
            return response

        what = "producer id (enable.idempotence=true)"
        given = self.cluster.ask_any(what, ask, self.cluster.patience(what, "max.block.ms"))
        self._producer_id = given.producer_id
        self._producer_epoch = given.producer_epoch

    # Batches to brokers

    def _fail(self, problem: ClientError) -> None:
        self._failure = problem
        raise problem

    def _work(self, *, wait: bool) -> None:
        """Sends what may be sent and takes the answers that are there, or waits for some."""
        self._send_ready()
        self._receive(wait=wait)
        if wait:
            self._expire()

    def _send_ready(self) -> None:
        now = self.cluster.clock.monotonic()
        while self._ready:
            requests = self._next_requests(now)
            if not requests:
                return
            for leader, batches in requests:
                self._send(leader, batches)

    def _next_requests(self, now: float) -> list[tuple[_Leader, list[ProduceBatch]]]:
        """At most one request for each leader that may get one."""
        chosen: dict[int, list[ProduceBatch]] = {}
        sizes: dict[int, int] = {}
        full: set[int] = set()
        for partition in list(self._ready):
            queue = self._queues[partition]
            if now < queue.retry_at or not queue.may_send(self._in_flight_max):
                continue
            leader = self._leader_of(queue, now)
            if leader is None or leader.node_id in full:
                continue
            size = sizes.get(leader.node_id, 0) + len(queue.waiting[0].data)
            if size > self._request_bytes_max and leader.node_id in chosen:
                full.add(leader.node_id)
                continue
            sizes[leader.node_id] = size
            batch = queue.send_next()
            self._ready_bytes -= len(batch.data)
            del self._ready[partition]
            if queue.waiting:
                self._ready[partition] = None
            chosen.setdefault(leader.node_id, []).append(batch)
        return [(self._leaders[node_id], batches) for node_id, batches in chosen.items()]

    def _leader_of(self, queue: PartitionQueue, now: float) -> _Leader | None:
        """The leader, if a request may go to it now."""
        try:
            node_id = self.cluster.leader_of(queue.partition).leader_id
        except ClientError as problem:
            if not may_pass(problem):
                self._fail(problem)
            queue.waiting[0].problem = problem
            queue.retry_at = now + retry_backoff(self.config).next_s()
            return None
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = _Leader(node_id, retry_backoff(self.config))
        if now < leader.retry_at or len(leader.requests) >= self._in_flight_max:
            return None
        return leader

    def _send(self, leader: _Leader, batches: list[ProduceBatch]) -> None:
        try:
            connection = leader.connection
            if connection is None or not connection.is_open:
                connection = leader.connection = self.cluster.take(leader.node_id)
            topics = self._topic_data(leader, batches)
            version = self._version(connection, topics)
            leader.requests.append(batches)
            request = ProduceRequest(
                acks=self._acks,
                timeout_ms=self.config.integer("request.timeout.ms"),
                topic_data=topics,
            )
            connection.send(request, version, has_answer=self._acks != 0)
        except UnsupportedByBroker as problem:
            self._fail(problem)
        except ClientError as problem:
            # A broker that has hung up may have answered before: what it wrote is not sent again.
            was_asked = any(asked is batches for asked in leader.requests)
            if was_asked and leader.connection is not None and leader.connection.is_open:
                self._receive_from(leader)
            if not was_asked or any(asked is batches for asked in leader.requests):
                self._lose(leader, problem, batches)
            return
        if self._acks == 0:
            leader.requests.clear()
            for batch in batches:
                self._acknowledge(batch, -1)

    def _topic_data(self, leader: _Leader, batches: list[ProduceBatch]) -> list[TopicProduceData]:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, partition = batch.partition
            if name not in topics:
                topic_id = self.cluster.topic(name).topic_id
                leader.topic_names[topic_id] = name
                topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
            topics[name].partition_data.append(
                PartitionProduceData(index=partition, records=batch.data)
            )
        return list(topics.values())

    def _version(self, connection: Connection, topics: list[TopicProduceData]) -> int:
        by_name = None
        if any(topic.topic_id == ZERO_UUID for topic in topics):
            by_name = LAST_BY_NAME[ApiKey.PRODUCE]
        version = connection.versions.version(ApiKey.PRODUCE, by_name, at_least=3)
        if self._codec == Codec.ZSTD and version < _ZSTD_VERSION:
            raise UnsupportedByBroker(
                f"broker {connection.broker} does not know compression.type=zstd: it offers "
                f"PRODUCE up to version {version}, needed is {_ZSTD_VERSION}"
            )
        return version

    # Answers

    def _receive(self, *, wait: bool) -> None:
        """Takes all answers that are there; with `wait`, waits until there is something to do."""
        waiting_for = {
            leader.connection.fileno(): leader
            for leader in self._leaders.values()
            if leader.requests and leader.connection is not None and leader.connection.is_open
        }
        timeout_s = self._wait_s(list(waiting_for.values())) if wait else 0.0
        if not waiting_for:
            if timeout_s > 0:
                time.sleep(timeout_s)
            return
        poll = select.poll()
        for fileno in waiting_for:
            poll.register(fileno, select.POLLIN)
        ready = poll.poll(timeout_s * 1000)
        for fileno, _ in ready:
            self._receive_from(waiting_for[fileno])
        if not ready:
            self._drop_overdue(list(waiting_for.values()))

    def _wait_s(self, leaders: list[_Leader]) -> float:
        """Until something falls due: an answer, another try, or the end of a batch's time."""
        now = self.cluster.clock.monotonic()
        due = [now + _POLL_MAX_S]
        for leader in leaders:
            if leader.connection is not None and leader.connection.in_flight:
                due.append(leader.connection.in_flight[0].deadline)
        for partition in self._ready:
            queue = self._queues[partition]
            expiry = queue.waiting[0].deadline + self._idle_s
            due += [at for at in (queue.retry_at, expiry) if at > now]
        due += [leader.retry_at for leader in self._leaders.values() if leader.retry_at > now]
        return max(0.0, min(due) - now)

    def _drop_overdue(self, leaders: list[_Leader]) -> None:
        now = self.cluster.clock.monotonic()
        for leader in leaders:
            connection = leader.connection
            assert connection is not None
            if connection.in_flight and now >= connection.in_flight[0].deadline:
                timeout_ms = self.config.integer("request.timeout.ms")
                problem = RequestTimedOut(
                    f"broker {connection.broker}: no answer to PRODUCE within {timeout_ms} ms "
                    "(request.timeout.ms)"
                )
                self._lose(leader, problem, [])

    def _receive_from(self, leader: _Leader) -> None:
        connection = leader.connection
        assert connection is not None
        try:
            while leader.requests and connection.is_readable(0):
                response = connection.receive().response
                assert isinstance(response, ProduceResponse), response
                self._take_answer(leader, leader.requests.pop(0), response)
                leader.backoff.reset()
        except UnreadableAnswer as problem:
            self._fail(problem)
        except ClientError as problem:
            if self._failure is not None:
                raise
            self._lose(leader, problem, [])

    def _lose(self, leader: _Leader, problem: ClientError, unsent: list[ProduceBatch]) -> None:
        """All that is in flight to this broker goes back to its place."""
        if not may_pass(problem):
            self._fail(problem)
        if leader.connection is not None:
            leader.connection.close()
            leader.connection = None
        lost = [batch for batches in leader.requests for batch in batches]
        lost += [batch for batch in unsent if batch not in lost]
        leader.requests.clear()
        leader.retry_at = self.cluster.clock.monotonic() + leader.backoff.next_s()
        for batch in lost:
            self._retry(batch, problem)

    def _take_answer(
        self, leader: _Leader, batches: list[ProduceBatch], response: ProduceResponse
    ) -> None:
        unanswered = {batch.partition: batch for batch in batches}
        for topic in response.responses:
            name = topic.name or leader.topic_names.get(topic.topic_id, "")
            for row in topic.partition_responses:
                batch = unanswered.pop(TopicPartition(name, row.index), None)
                if batch is not None:
                    self._take_row(batch, row)
        for batch in unanswered.values():
            self._fail(
                UnreadableAnswer(f"an answer to PRODUCE leaves out partition {batch.partition}")
            )

    def _take_row(self, batch: ProduceBatch, row: PartitionProduceResponse) -> None:
        code = row.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledge(batch, row.base_offset if code == ErrorCode.NONE else -1)
            return
        problem = refused(
            f"write of {batch.records_count} records to partition {batch.partition}",
            code,
            row.error_message,
        )
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.records_count > 1:
            self._split(batch)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_be_late(batch):
            self._retry(batch, problem)
        elif may_pass(problem) and code != ErrorCode.CORRUPT_MESSAGE:
            self._retry(batch, problem)
            queue = self._queues[batch.partition]
            queue.retry_at = self.cluster.clock.monotonic() + self._pause_s(batch)
        else:
            self._fail(problem)

    def _pause_s(self, batch: ProduceBatch) -> float:
        backoff = retry_backoff(self.config)
        backoff.attempt = batch.attempts - 1
        return backoff.next_s()

    def _may_be_late(self, batch: ProduceBatch) -> bool:
        """Whether a failed batch before this one explains its being out of sequence.

        An answer of a former leader may come after the batch before was written by the new one:
        so being first is held against a batch only the second time.
        """
        if self._queues[batch.partition].is_first(batch):
            batch.out_of_order_count += 1
        return batch.out_of_order_count < 2

    def _acknowledge(self, batch: ProduceBatch, base_offset: int) -> None:
        self._queues[batch.partition].acknowledge(batch, base_offset)
        self.unacknowledged_bytes -= len(batch.data)

    def _retry(self, batch: ProduceBatch, problem: ClientError) -> None:
        if batch.attempts > self.config.integer("retries"):
            self._fail(problem)
        batch.problem = problem
        self._queues[batch.partition].put_back(batch)
        self._ready.setdefault(batch.partition)
        self._ready_bytes += len(batch.data)
        self.cluster.refresh([batch.partition.topic])

    def _split(self, batch: ProduceBatch) -> None:
        """Halves take the batch's place, decoded from it: that is rare and needs no rows kept."""
        from tidelog.record.columns import columns_of, part_of

        header = BatchHeader(batch.data)
        part = part_of(memoryview(batch.data), header.attributes, 0, header.records_count)
        columns = columns_of([part]).raw
        middle = batch.records_count // 2
        halves = [
            ProduceBatch(
                batch.partition,
                self._finish(
                    kernel.encode_columns(columns, start, stop, None, HEADER_SIZE),
                    stop - start,
                    batch.place + start,
                ),
                stop - start,
                batch.place + start,
                batch.deadline,
            )
            for start, stop in ((0, middle), (middle, batch.records_count))
        ]
        self._queues[batch.partition].replace(batch, halves)
        size = sum(len(half.data) for half in halves)
        self.unacknowledged_bytes += size - len(batch.data)
        self._ready.setdefault(batch.partition)
        self._ready_bytes += size

    def _expire(self) -> None:
        now = self._active_s()
        for queue in self._queues.values():
            oldest = min(
                (batches[0] for batches in (queue.in_flight, queue.waiting) if batches),
                key=lambda batch: batch.place,
                default=None,
            )
            if oldest is not None and now >= oldest.deadline:
                timeout_ms = self.config.integer("delivery.timeout.ms")
                why = oldest.problem or "no answer came"
                self._fail(
                    RequestTimedOut(
                        f"{oldest.records_count} records for partition {queue.partition} were not "
                        f"acknowledged within {timeout_ms} ms (delivery.timeout.ms): {why}",
                        ErrorCode.NONE if oldest.problem is None else oldest.problem.code,
                    )
                )
