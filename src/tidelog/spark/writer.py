"""Writing, batch and streaming, from Arrow record batches.

At least once (`deliveryGuarantee`): a task writes with an idempotent producer and ends when
everything is acknowledged, so retries of requests write nothing twice. A task that Spark runs
again, and a micro-batch that is repeated after a restart, do write their rows again. There is
nothing to commit or to take back, as in Spark's kafka sink.

Exactly once: nothing that a task writes is visible before the driver commits (batch_commit). A task
hands its rows to the driver, and those of a stream beyond `driverBytesPerTask` to a transaction
that the driver ends. Spark tells the driver which attempt of each task survived. A batch job with
`txnAppId` and `txnVersion` does the same, and writes nothing when it is repeated. One without them
writes all its rows in one transaction of the driver, so it has no such limit.

Spark reuses its Python workers, so a worker keeps its producers from one task to the next
(`process_producer`, `process_slots`).

The columns of a DataFrame that are written, and their types

    value       string or binary, required
    key         string or binary
    headers     array<struct<key:string,value:binary>>
    topic       string; required when the option `topic` is not set, unused when it is
    partition   int; null leaves it to the partitioner

Names are case-sensitive. Other columns, `timestamp` among them, are not written: the broker or the
time of writing decides, as in Spark's kafka sink.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.errors import BrokerRefused
from tidelog.errors import ErrorCode
from tidelog.spark.options import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.blocking.producer import Producer
    from tidelog.client.producer.delivery import ArrowDelivery
    from tidelog.spark.batch_commit import BatchCommit, TaskTransaction
    from tidelog.spark.options import SinkOptions
    from tidelog.spark.task_slots import QueryRun

PRODUCERS_MAX: Final = 8
COLUMN_TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}

_producers: dict[tuple[int, tuple[tuple[str, str], ...]], Producer] = {}


class RowsWritten(WriterCommitMessage):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class RowsHandedOver(WriterCommitMessage):
    """What one attempt has for the driver: Arrow rows as an IPC stream, or a transaction."""

    def __init__(
        self, query_id: str, arrow: bytes = b"", transaction: TaskTransaction | None = None
    ) -> None:
        self.query_id = query_id
        self.arrow = arrow
        self.transaction = transaction


class RowSink:
    """What both kinds of writer share; travels to the executors."""

    def __init__(self, options: SinkOptions, columns: list[str]) -> None:
        self.options = options
        self.columns = columns

    def write(self, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
        producer = process_producer(self.options.producer_options())
        selected = (batch.select(self.columns) for batch in batches)
        under_way, rows = self._send(producer, selected)
        for delivery in under_way:
            delivery.result()
        return RowsWritten(rows)

    def _send(
        self, producer: Producer, batches: Iterable[pa.RecordBatch]
    ) -> tuple[Iterable[ArrowDelivery], int]:
        """Deliveries that are not done yet, and how many rows were sent in all."""
        under_way: deque[ArrowDelivery] = deque()
        rows = 0
        for batch in batches:
            under_way.append(producer.send_arrow(batch, self.options.topic))
            rows += batch.num_rows
            while under_way and under_way[0].done():
                under_way.popleft().result()
        return under_way, rows

    def hand_over(
        self, batches: Iterator[pa.RecordBatch], task: StreamTask | None
    ) -> RowsHandedOver:
        """For the driver to commit. Without a streaming task there is no limit of bytes."""
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        selected = (batch.select(self.columns) for batch in batches)
        for batch in selected:
            held.append(batch)
            held_bytes += batch.nbytes
            if task is not None and held_bytes > self.options.driver_bytes_per_task:
                transaction = self._write_in_slot(task, chain(held, selected))
                return RowsHandedOver(task.run.query_id, transaction=transaction)
        query_id = "" if task is None else task.run.query_id
        return RowsHandedOver(query_id, _to_stream(held))

    def _write_in_slot(
        self, task: StreamTask, batches: Iterable[pa.RecordBatch]
    ) -> TaskTransaction:
        """Leaves the transaction open."""
        from tidelog.spark.batch_commit import TaskTransaction
        from tidelog.spark.task_slots import process_slots

        slots = process_slots(task.run)
        slot = slots.take(task.batch_id)
        try:
            producer = slot.producer(self.options.task_producer())
            with _known_timeout(self.options):
                producer.init_transactions()
            producer.begin_transaction()
            under_way, rows = self._send(producer, batches)
            for delivery in under_way:
                delivery.result()
            handed = producer.hand_over_transaction()
        except BaseException:
            slots.failed(slot)
            raise
        slots.handed_over(slot)
        return TaskTransaction(handed, rows)


@contextmanager
def _known_timeout(options: SinkOptions) -> Iterator[None]:
    """Says which option is at fault if brokers refuse the timeout of transactions."""
    try:
        yield
    except BrokerRefused as problem:
        if problem.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise InvalidOption(
            "kafka.transaction.timeout.ms",
            f"{options.transaction_timeout_ms} is more than these brokers allow "
            "(transaction.max.timeout.ms); set it lower",
        ) from problem


def _to_stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    import pyarrow as pa

    if not any(batch.num_rows for batch in batches):
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _from_streams(messages: Iterable[RowsHandedOver]) -> list[pa.RecordBatch]:
    import pyarrow as pa

    return [
        batch
        for message in messages
        if message.arrow
        for batch in pa.ipc.open_stream(message.arrow)
    ]


class StreamTask(NamedTuple):
    """An attempt of a task of a streaming query."""

    run: QueryRun
    batch_id: int

    @classmethod
    def current(cls) -> StreamTask:
        from tidelog.spark.task_slots import QueryRun

        context = TaskContext.get()
        assert context is not None, "only Spark's tasks write"
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if query_id is None or batch_id is None:
            raise RuntimeError(
                "exactly-once delivery needs to know the query and its batch, and this Spark does "
                "not tell its tasks; set the option deliveryGuarantee to at-least-once"
            )
        return cls(QueryRun(query_id, _job_group() or uuid.uuid4().hex), int(batch_id))


def _job_group() -> str | None:
    """Of a streaming query it is the id of its run."""
    context = TaskContext.get()
    assert context is not None, "only Spark's tasks write"
    return context.getLocalProperty("spark.jobGroup.id")


def process_producer(options: Mapping[str, str]) -> Producer:
    """The one of this process for that configuration; the least used are closed."""
    from tidelog.client.blocking.producer import Producer

    key = os.getpid(), tuple(sorted(options.items()))
    producer = _producers.pop(key, None)
    if producer is None:
        producer = Producer(options)
    _producers[key] = producer
    while len(_producers) > PRODUCERS_MAX:
        _producers.pop(next(iter(_producers))).close()
    return producer


class TidelogWriter(DataSourceArrowWriter):
    """Made once for a job; commit and abort get copies of it."""

    def __init__(self, sink: RowSink) -> None:
        sink.options.check_batch()
        self._sink = sink
        self._job_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._sink.options.is_exactly_once:
            return self._sink.hand_over(iterator, self._task_or_none())
        return self._sink.write(iterator)

    def _task_or_none(self) -> StreamTask | None:
        """A job that has a name and a number is committed as the batch of a query is."""
        from tidelog.spark.task_slots import QueryRun

        write = self._sink.options.write
        if write is None:
            return None
        return StreamTask(QueryRun(write.app_id, _job_group() or self._job_id), write.version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        handed = _handed_over(messages)
        write = self._sink.options.write
        if handed and write is not None:
            commit_batch(self._sink.options, handed, write.version)
        elif rows := _from_streams(handed):
            LoopThread.shared().run(lambda: self._write(rows))

    async def _write(self, rows: list[pa.RecordBatch]) -> None:
        from tidelog.client.producer.async_producer import AsyncProducer
        from tidelog.spark.sink_ledger import ID_PREFIX, write_in_one_transaction

        options = self._sink.options
        transactional_id = f"{ID_PREFIX}-write-{self._job_id}"
        config = {**options.task_producer(), "transactional.id": transactional_id}
        async with AsyncProducer(config) as producer:
            with _known_timeout(options):
                await producer.init_transactions()
            await write_in_one_transaction(producer, rows, options.topic)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Without a name nothing was written, or it has to stay."""
        if self._sink.options.write is not None:
            abort_batch(
                self._sink.options, _handed_over(messages), self._sink.options.write.version
            )


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for every call, in processes that share nothing."""

    def __init__(self, sink: RowSink) -> None:
        if sink.options.write is not None:
            raise InvalidOption(
                "txnAppId", "is for batch jobs; a streaming query has an id and batches of its own"
            )
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._sink.options.is_exactly_once:
            return self._sink.hand_over(iterator, StreamTask.current())
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if handed := _handed_over(messages):
            commit_batch(self._sink.options, handed, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        abort_batch(self._sink.options, _handed_over(messages), batchId)


def commit_batch(options: SinkOptions, handed: list[RowsHandedOver], batch_id: int) -> None:
    LoopThread.shared().run(
        lambda: _with_commit(
            options,
            handed[0].query_id,
            batch_id,
            lambda commit: commit.commit(_from_streams(handed), _transactions(handed)),
        )
    )


def abort_batch(options: SinkOptions, handed: list[RowsHandedOver], batch_id: int) -> None:
    """Only transactions have to be aborted; rows at the driver are just forgotten."""
    if transactions := _transactions(handed):
        LoopThread.shared().run(
            lambda: _with_commit(
                options, handed[0].query_id, batch_id, lambda commit: commit.abort(transactions)
            )
        )


async def _with_commit(
    options: SinkOptions,
    query_id: str,
    batch_id: int,
    do: Callable[[BatchCommit[pa.RecordBatch]], Awaitable[object]],
) -> None:
    from tidelog.spark.batch_commit import BatchCommit
    from tidelog.spark.sink_ledger import ClusterLedger

    ledger = ClusterLedger(options, query_id)
    try:
        await do(BatchCommit(ledger, query_id, batch_id))
    finally:
        await ledger.close()


def _handed_over(messages: Iterable[WriterCommitMessage | None]) -> list[RowsHandedOver]:
    """Nothing of those that write at least once."""
    return [message for message in messages if isinstance(message, RowsHandedOver)]


def _transactions(handed: Iterable[RowsHandedOver]) -> list[TaskTransaction]:
    return [message.transaction for message in handed if message.transaction is not None]


class InvalidSinkSchema(ValueError):
    """Names the column at fault and what it may be."""


def written_columns(columns: Iterable[tuple[str, str]], topic: str | None) -> list[str]:
    """Of (name, Spark's simple type name) those to write, in the order above."""
    given: dict[str, str] = {}
    for name, type_name in columns:
        given.setdefault(name, type_name)
    if "value" not in given:
        raise InvalidSinkSchema(
            f"the required column 'value' is not there; the columns are {', '.join(given)}"
        )
    if topic is None and "topic" not in given:
        raise InvalidSinkSchema(
            "no topic to write to: set the option 'topic', or have a column 'topic'"
        )
    written = [name for name in COLUMN_TYPES if name in given and not (name == "topic" and topic)]
    for name in written:
        if given[name] not in COLUMN_TYPES[name]:
            raise InvalidSinkSchema(
                f"column '{name}' of type {given[name]} cannot be written; it must be "
                f"{' or '.join(COLUMN_TYPES[name])}"
            )
    return written
