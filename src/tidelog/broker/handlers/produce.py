"""Produce v0-v13: append record batches to partitions this broker leads.

Behaviour
- acks 1 is answered when the records are in the log (and flushed, where flush.messages says so),
  acks -1 when all in-sync replicas have them: until timeout_ms, then REQUEST_TIMED_OUT. With fewer
  than min.insync.replicas in sync it is NOT_ENOUGH_REPLICAS, or NOT_ENOUGH_REPLICAS_AFTER_APPEND
  if that is found later. acks 0 gets no answer, and an error closes the connection, as Kafka does.
- While an answer waits, further Produce requests of the connection are appended; answers keep
  their order. So one round trip to the followers serves all that a producer has in flight.
- Small batches that arrive in one turn of the loop share a write, and are answered after it: see
  `replication.append_turn`. With acks 0 and in transactions each is appended at once.
- Records of a transaction need a transactional id that the client may write with, else the whole
  request is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED. They are appended where the
  partition is in the transaction (v11: else 120, before: 48); v12+ adds it, see
  `broker.transactions`.
- Each partition has its own error; a partition named twice is appended once (the last one). A topic
  without partitions is not in the answer.
- Where the log refuses records, the answer carries its log start offset, except for damaged records
  and ones that are too large: see `_WITHOUT_LOG_START`. Nor does it where the request is refused
  before the log is asked: not one batch, or in v3-v6 zstd (76) or an unknown codec (-1).
- v0-v2: a message set without a whole message is no error and appends nothing (offset -1).
- An idempotent duplicate is no error: the answer carries the offsets of the first append.
- A thread checks records that take long (inflate, compress anew, convert), and a request for very
  many partitions is handled in slices (`broker.deferred_rows`). Such records are appended as if
  their request had come then. Their order is kept, because the connection's next request waits.
Unlike Kafka
- When a batch of an idempotent producer is refused because this broker does not lead, or too few
  replicas are in sync, the batches sent behind it get the same error, and not 45 (out of order);
  see `broker.refused_sequences`.
- A producer of whose transactions only markers are left, because what was before them was deleted,
  may go on with any sequence; Kafka answers 45. See `log/producer_loading.py`.
- Null records are INVALID_RECORD; Kafka never answers them.
- An unknown codec in v3-v6 fails its own partition. Kafka fails all partitions of the request.
- Every error has a message, not only those that name records.
- Timestamps in the future are taken, as by Kafka 3.9: Kafka 4 has another default of
  message.timestamp.after.max.ms.
- Offset deltas out of order are put right; see `log.log_validator`.
Checks, in order: transactional id (53), WRITE on the topic (29), topic and partition known, with
bad acks one whole batch (87, 76), acks (21), partition hosted and led here, not a topic of the
coordinators (17; Kafka's admin client, by its client id, may), the transaction, no batch before it
refused, enough replicas in sync, then those of the log's validator.
Versions: v0-v2 message sets (converted up), v3 record batches, v5 log start offset, v7 zstd,
v8 record errors, v9 flexible, v10 the leader where this broker is not it (KIP-951), v11
TRANSACTION_ABORTABLE, v12 adds partitions to the transaction (KIP-890), v13 topic ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.authorized_operations import TOPIC, TRANSACTIONAL_ID, WRITE
from tidelog.broker.context import CloseConnection, RequestContext
from tidelog.broker.deferred_rows import DeferredRow, DeferredRows, PartOutcome, bytes_of
from tidelog.broker.metadata_cache import current_leader, leader_endpoints
from tidelog.broker.transactions import admit_records
from tidelog.controller.topic_names import INTERNAL_TOPICS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.log_validator import ValidBatch, must_be_one_batch
from tidelog.log.partition_log import LogAppendInfo
from tidelog.pending import Pending
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.record.batch import (
    ATTRIBUTE_BITS_POSITION,
    CODEC_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    holds_whole_batch,
    is_transactional,
)
from tidelog.record.errors import InvalidRecords, InvalidTimestamps, NotOneBatch, UnknownCodec
from tidelog.record.inflation import HeavyRecords, InflationBudget
from tidelog.replication.append_turn import QueuedAppend
from tidelog.replication.delayed_answer import DelayedAnswer
from tidelog.replication.partition import Partition
from tidelog.slices import SLICE_S
from tidelog.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.config.topic import LogConfig

Answer = ProduceResponse | CloseConnection | None
Row = tuple[PartitionProduceResponse, Partition]

ALL: Final = -1
PRODUCE: Final = int(ApiKey.PRODUCE)
NOT_BEGUN: Final = -1.0
ROWS_AT_ONCE: Final = 20  # a request for more partitions looks at the time
FIRST_VERSION_WITH_LEADERS: Final = 10
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
LAST_VERSION_WITHOUT_STORAGE_ERROR: Final = 3
FIRST_VERSION_WITH_BATCHES: Final = 3
_PLAIN: Final = ("producer", "uncompressed")
_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
_BEFORE_THE_LOG: Final = (NotOneBatch, UnknownCodec)  # refused before a log is asked for


def handle(context: RequestContext, request: ProduceRequest) -> Answer | Pending[Answer]:
    return _handle(context, request, _Append(context, request))


def _handle(
    context: RequestContext, request: ProduceRequest, append: _Append
) -> Answer | Pending[Answer]:
    if append.is_transactional and append.refusal is None:
        return _append_transactional(context, request, append)
    return _append_all(context, request, append)


def _append_all(
    context: RequestContext, request: ProduceRequest, append: _Append
) -> Answer | Pending[Answer]:
    topics = request.topic_data
    if len(topics) > 1:
        topics = _distinct(topics)
    append.bound_time(topics)
    responses = [append.topic(topic) for topic in topics if topic.partition_data]
    response = ProduceResponse(responses=responses)
    if append.is_part:
        return response
    if append.deferred:
        if append.queued:
            context.broker.append_turn.end()
        return _append_deferred(context, request, append, response)
    if append.queued:
        return _QueuedAnswer(context, request, append, response).pending
    return _finish(context, request, append, response)


def _finish(
    context: RequestContext, request: ProduceRequest, append: _Append, response: ProduceResponse
) -> Answer | Pending[Answer]:
    assert not append.unsettled, "an append has no outcome"
    if append.misdirected and append.version >= FIRST_VERSION_WITH_LEADERS:
        _tell_leaders(context, append.misdirected, response)
    if append.unflushed or append.uncommitted:
        return _CommitWait(context.broker, append, response).answer(request.timeout_ms)
    return append.answer(response)


def _append_transactional(
    context: RequestContext, request: ProduceRequest, append: _Append
) -> Answer | Pending[Answer]:
    assert request.transactional_id is not None
    try:
        append.refused, written = admit_records(context, request, request.transactional_id)
    except KafkaError as error:
        append.refusal = error.code
        written = None
    if written is None:
        return _append_all(context, request, append)
    for topic in request.topic_data:
        for row in topic.partition_data:
            if row.records is not None:  # the frame is gone when the write is done
                row.records = memoryview(bytearray(row.records))

    def added(code: ErrorCode) -> Answer | Pending[Answer]:
        if code is not ErrorCode.NONE:
            append.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        return _append_all(context, request, append)

    return written.and_then(added)


def _append_deferred(
    context: RequestContext, request: ProduceRequest, append: _Append, response: ProduceResponse
) -> Pending[Answer]:
    """Append the rows that take long, and answer after the last one."""
    version = append.version

    def handle_part(
        part: ProduceRequest, rows: Sequence[DeferredRow]
    ) -> PartOutcome | Pending[PartOutcome]:
        later = _Append(context, part)
        later.go_on_from(append, rows)

        def outcome(answer: Answer) -> PartOutcome:
            assert isinstance(answer, ProduceResponse)
            return answer, later.deferred

        answer = _handle(context, part, later)
        return answer.map(outcome) if isinstance(answer, Pending) else outcome(answer)

    rows = DeferredRows(
        context.broker,
        request,
        response,
        append.deferred,
        handle_part,
        version,
        by_topic_id=version >= FIRST_VERSION_WITH_TOPIC_IDS,
    )
    return rows.append().and_then(lambda _: _finish(context, request, append, response))


class _Append:
    """One request's appends, and what came of them."""

    __slots__ = (
        "_broker",
        "_checked",
        "_client_id",
        "_context",
        "_deadline",
        "_inflation",
        "_may_wait",
        "_refused_sequences",
        "_session",
        "_topic",
        "acks",
        "deferred",
        "is_part",
        "is_transactional",
        "misdirected",
        "queued",
        "queued_answer",
        "refusal",
        "refused",
        "uncommitted",
        "unflushed",
        "unsettled",
        "version",
    )

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._context = context
        self._broker = context.broker
        self._refused_sequences = context.broker.refused_sequences
        self.version = context.api_version
        self.acks = request.acks
        self._session = context.session
        self._client_id = context.client_id
        self.unflushed: list[Row] = []  # appended, to be flushed before the answer
        # Appended, to be held by all in-sync replicas up to an offset before the answer.
        self.uncommitted: list[tuple[PartitionProduceResponse, Partition, int]] = []
        self.misdirected: list[tuple[str, PartitionProduceResponse]] = []  # led elsewhere
        self.deferred: list[DeferredRow] = []  # not appended yet
        self.queued = 0  # rows that wait for the end of the turn
        self.unsettled = 0  # rows of them without an outcome
        self.queued_answer: _QueuedAnswer | None = None  # to be told when none waits any more
        self._deadline: float = 0.0  # by perf_counter; what comes after it is deferred
        self.is_part = False  # of a larger request, whose answer is made elsewhere
        self._checked: dict[tuple[str, Uuid, int], DeferredRow] = {}  # by a thread
        self.refusal: ErrorCode | None = None  # applies to every partition
        self.refused: dict[TopicPartition, KafkaError] = {}  # not in the transaction
        transactional, self._inflation = _survey(request, self.version)
        self.is_transactional = transactional
        # Readers on the same connection must see at once what acks=0 has appended.
        self._may_wait = request.acks != 0 and not transactional
        if transactional and (
            request.transactional_id is None
            or not context.may(WRITE, TRANSACTIONAL_ID, request.transactional_id)
        ):
            self.refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not -1 <= request.acks <= 1:
            self.refusal = ErrorCode.INVALID_REQUIRED_ACKS

    def go_on_from(self, before: _Append, rows: Sequence[DeferredRow]) -> None:
        """Append rows that were deferred; the rest of the request was appended before."""
        self.is_part = True
        self._may_wait = False
        self.refusal = before.refusal
        self._checked = {
            (row.topic.name, row.topic.topic_id, row.index): row for row in rows if row.is_heavy
        }
        self.unflushed, self.uncommitted = before.unflushed, before.uncommitted
        self.misdirected = before.misdirected

    def bound_time(self, topics: list[TopicProduceData]) -> None:
        """A first append makes files; a request for thousands of partitions takes seconds."""
        if sum(len(topic.partition_data) for topic in topics) <= ROWS_AT_ONCE:
            return
        size_bytes = sum(bytes_of(topic.partition_data) for topic in topics)
        if self.is_part or self._broker.record_threads.may_hold(size_bytes):
            self._deadline = NOT_BEGUN

    def _is_late(self) -> bool:
        """Never before the first partition, so that each slice gets on."""
        now = perf_counter()
        if self._deadline == NOT_BEGUN:
            self._deadline = now + SLICE_S
        return now > self._deadline

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        self._topic = topic
        name = topic.name
        unknown: ErrorCode | None = None
        if self.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            image = self._broker.topics.by_id.get(topic.topic_id)
            name = "" if image is None else image.name
            if image is None:
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
        if unknown is None and not self._context.may(WRITE, TOPIC, name):
            unknown = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rows = topic.partition_data
        if len(rows) > 1:
            rows = list({row.index: row for row in rows}.values())
        return TopicProduceResponse(
            name=name,
            topic_id=topic.topic_id,
            partition_responses=[self._partition(name, row, unknown) for row in rows],
        )

    def _partition(
        self, topic: str, row: PartitionProduceData, unknown: ErrorCode | None
    ) -> PartitionProduceResponse:
        index = row.index
        if self._deadline and self._is_late():
            return self._defer_again(row)
        if self.refusal is not None:
            return self._refused(topic, row, unknown, self.refusal)
        if unknown is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return self._failed(index, KafkaError(unknown))
        partition = self._broker.replicas.get(topic, index)
        if partition is None or not partition.is_leader:
            return self._not_led(topic, row, unknown, partition)
        if topic in INTERNAL_TOPICS and not self._session.may_append_to_internal_topics(
            self._client_id
        ):
            return self._failed(
                index,
                KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients do not append to {topic}."),
            )
        if row.records is None:
            return self._failed(index, KafkaError(ErrorCode.INVALID_RECORD, "records are null"))
        if self.refused and partition.topic_partition in self.refused:
            return self._fail(topic, row, self.refused[partition.topic_partition], partition)
        if self.version < FIRST_VERSION_WITH_BATCHES and not holds_whole_batch(row.records):
            return PartitionProduceResponse(index=index, base_offset=-1)
        if self._refused_sequences:
            partition.append_queued()
            code = self._refused_sequences.refuse(
                topic, index, row.records, partition.log.producers
            )
            if code is not None:
                error = KafkaError(code, "A batch that was sent before this one was refused.")
                return self._failed(index, self._in_version(error))
        config = partition.log.config
        if self._inflation is None and config.compression_type not in _PLAIN:
            self._inflation = InflationBudget.for_request(len(row.records))
        needs_all = self.acks == ALL and partition.leadership is not None
        try:
            if needs_all:
                partition.require_enough_in_sync()
            if (
                self._may_wait
                and self._inflation is None
                and self._broker.append_turn.is_worth_waiting(len(row.records))
            ):
                return self._append_soon(topic, row, partition, needs_all)
            info = partition.append(
                row.records,
                self.version,
                inflation=self._inflation,
                checked=self._checked_batch(row, config) if self._checked else None,
            )
        except HeavyRecords:
            return self._leave_to_thread(topic, row, config)
        except KafkaError as error:
            return self._refused_by_log(topic, row, error, partition)
        answer = PartitionProduceResponse(
            index=index,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        if needs_all:
            self.uncommitted.append((answer, partition, info.last_offset + 1))
        elif partition.must_flush_before_ack:
            self.unflushed.append((answer, partition))
        return answer

    def _refused_by_log(
        self, topic: str, row: PartitionProduceData, error: KafkaError, partition: Partition
    ) -> PartitionProduceResponse:
        failed = self._fail(topic, row, error, partition)
        if error.code not in _WITHOUT_LOG_START:  # as Kafka counts them
            partition.traffic.failed_appends += 1
        if error.code not in _WITHOUT_LOG_START and not isinstance(error, _BEFORE_THE_LOG):
            failed.log_start_offset = partition.log.log_start_offset
        return failed

    def _append_soon(
        self, topic: str, row: PartitionProduceData, partition: Partition, needs_all: bool
    ) -> PartitionProduceResponse:
        assert row.records is not None
        records = memoryview(bytearray(row.records))  # the frame is gone when `handle` returns
        queued = _QueuedRow(records, self, topic, row.index, partition, needs_all)
        self.queued += 1
        self.unsettled += 1
        self._broker.append_turn.add(partition, queued)
        return queued.answer

    def settle(self, row: _QueuedRow) -> None:
        outcome, answer, partition = row.outcome, row.answer, row.partition
        if outcome is None:
            return  # a bug; `_finish` says so
        self.unsettled -= 1
        if not isinstance(outcome, LogAppendInfo):
            data = PartitionProduceData(index=answer.index, records=row.records)
            _become(answer, self._refused_by_log(row.topic, data, outcome, partition))
            return
        answer.base_offset = outcome.base_offset
        answer.log_append_time_ms = outcome.log_append_time_ms
        answer.log_start_offset = outcome.log_start_offset
        if row.needs_all:
            self.uncommitted.append((answer, partition, outcome.last_offset + 1))
        elif partition.must_flush_before_ack:
            self.unflushed.append((answer, partition))

    def _checked_batch(self, row: PartitionProduceData, config: LogConfig) -> ValidBatch | None:
        checked = self._checked.get((self._topic.name, self._topic.topic_id, row.index))
        return None if checked is None else checked.batch(config)

    def _leave_to_thread(
        self, topic: str, row: PartitionProduceData, config: LogConfig
    ) -> PartitionProduceResponse:
        assert row.records is not None
        assert self._inflation is not None
        heavy = next((each for each in self.deferred if each.is_heavy), None)
        budget = self._inflation.for_thread() if heavy is None else heavy.budget
        held_bytes = bytes_of(self.deferred)
        if not self._broker.record_threads.may_hold(held_bytes + len(row.records)):
            self._inflation = budget
            return self._partition(topic, row, None)
        return self._defer(row, config, self._broker.clock.time_ms(), budget)

    def _defer_again(self, row: PartitionProduceData) -> PartitionProduceResponse:
        before = self._checked.get((self._topic.name, self._topic.topic_id, row.index))
        if before is None:
            return self._defer(row)
        self.deferred.append(before)
        return PartitionProduceResponse(index=row.index)

    def _defer(self, row: PartitionProduceData, *check: Any) -> PartitionProduceResponse:
        records = row.records
        if records is not None and not self.is_part:  # the frame is gone when `handle` returns
            records = memoryview(bytearray(records))
        self.deferred.append(DeferredRow(self._topic, row.index, records, *check))
        return PartitionProduceResponse(index=row.index)

    def _refused(
        self, topic: str, row: PartitionProduceData, unknown: ErrorCode | None, refusal: ErrorCode
    ) -> PartitionProduceResponse:
        """As in Kafka, acks are looked at where topic and records are no reason to refuse."""
        error = KafkaError(refusal)
        if refusal is ErrorCode.INVALID_REQUIRED_ACKS:
            if unknown is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return self._failed(row.index, KafkaError(unknown))
            replicas = self._broker.replicas
            if replicas.get(topic, row.index) is None:
                unknown = unknown or replicas.absent_error(topic, row.index)
            try:
                if unknown in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise KafkaError(unknown)
                if row.records is not None:
                    must_be_one_batch(row.records, self.version)
            except KafkaError as earlier:
                error = earlier
        return self._fail(topic, row, error, self._broker.replicas.get(topic, row.index))

    def _not_led(
        self,
        topic: str,
        row: PartitionProduceData,
        unknown: ErrorCode | None,
        partition: Partition | None,
    ) -> PartitionProduceResponse:
        code = unknown or self._broker.replicas.absent_error(topic, row.index)
        if partition is not None:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = self._fail(topic, row, KafkaError(code), partition)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.misdirected.append((topic, answer))
        return answer

    def _fail(
        self,
        topic: str,
        row: PartitionProduceData,
        error: KafkaError,
        partition: Partition | None,
    ) -> PartitionProduceResponse:
        producers = None if partition is None else partition.log.producers
        self._refused_sequences.note(topic, row.index, row.records, error.code, producers)
        return self._failed(row.index, self._in_version(error))

    def _failed(self, index: int, error: KafkaError) -> PartitionProduceResponse:
        self._broker.request_metrics.of(PRODUCE).failed(error.code)
        return _failed(index, error)

    def _in_version(self, error: KafkaError) -> KafkaError:
        """Old clients do not know KAFKA_STORAGE_ERROR and would not retry."""
        if (
            error.code is ErrorCode.KAFKA_STORAGE_ERROR
            and self.version <= LAST_VERSION_WITHOUT_STORAGE_ERROR
        ):
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return error

    def answer(self, response: ProduceResponse) -> Answer:
        if self.acks != 0:
            return response
        for topic in response.responses:
            for row in topic.partition_responses:
                if row.error_code:
                    return CloseConnection(f"acks=0 produce failed, error {row.error_code:d}")
        return None


def _tell_leaders(
    context: RequestContext,
    misdirected: list[tuple[str, PartitionProduceResponse]],
    response: ProduceResponse,
) -> None:
    leader_ids = set()
    for topic, row in misdirected:
        leader = current_leader(context.broker, topic, row.index)
        if leader is not None:
            leader_ids.add(leader.leader_id)
            row.current_leader = LeaderIdAndEpoch(
                leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
            )
    response.node_endpoints = [
        NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
        for node in leader_endpoints(context.broker, leader_ids, context.session.listener_name)
    ]


def _distinct(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """A topic named twice becomes one, so that a partition is appended once."""
    merged: dict[tuple[str, Uuid], TopicProduceData] = {}
    for topic in topics:
        first = merged.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partition_data = [*first.partition_data, *topic.partition_data]
    return list(merged.values())


def _survey(request: ProduceRequest, version: int) -> tuple[bool, InflationBudget | None]:
    """Whether there are records of a transaction, and a budget if there are compressed ones.

    One look at the attributes of each batch spares plain requests all further questions.
    """
    attributes = 0 if version >= FIRST_VERSION_WITH_BATCHES else CODEC_MASK
    for topic in request.topic_data:
        for row in topic.partition_data:
            records = row.records
            if records is not None and len(records) > HEADER_SIZE:
                attributes |= records[ATTRIBUTE_BITS_POSITION]
    if not attributes & (CODEC_MASK | TRANSACTIONAL_BIT):
        return False, None
    everything = [
        row.records
        for topic in request.topic_data
        for row in topic.partition_data
        if row.records is not None
    ]
    budget = InflationBudget.for_request(sum(map(len, everything)))
    return any(map(is_transactional, everything)), budget


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    record_errors: Sequence[tuple[int, str]] = ()
    if isinstance(error, InvalidRecords | InvalidTimestamps):
        record_errors = error.record_errors
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        error_message=error.message,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=text)
            for place, text in record_errors
        ],
    )


def _become(answer: PartitionProduceResponse, failed: PartitionProduceResponse) -> None:
    """The answer has its place in the response already."""
    answer.error_code = failed.error_code
    answer.base_offset = failed.base_offset
    answer.log_append_time_ms = failed.log_append_time_ms
    answer.log_start_offset = failed.log_start_offset
    answer.record_errors = failed.record_errors
    answer.error_message = failed.error_message


class _QueuedRow(QueuedAppend):
    """Records that wait for the end of the turn, and their row of the answer."""

    __slots__ = ("_append", "answer", "needs_all", "partition", "topic")

    def __init__(
        self,
        records: memoryview,
        append: _Append,
        topic: str,
        index: int,
        partition: Partition,
        needs_all: bool,
    ) -> None:
        super().__init__(records, append.version)
        self._append = append
        self.answer = PartitionProduceResponse(index=index)
        self.topic = topic
        self.partition = partition
        self.needs_all = needs_all

    def settle(self) -> None:
        append = self._append
        append.queued -= 1
        try:
            append.settle(self)
        finally:
            if not append.queued and append.queued_answer is not None:
                append.queued_answer.finish()


class _QueuedAnswer:
    """An answer that waits for the end of the turn, and then as long as it would have to."""

    __slots__ = ("_append", "_context", "_request", "_response", "pending")

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        append: _Append,
        response: ProduceResponse,
    ) -> None:
        self._context = context
        self._request = request
        self._append = append
        self._response = response
        self.pending: Pending[Answer] = Pending(lets_others_pass=True)
        append.queued_answer = self

    def finish(self) -> None:
        self._append.queued_answer = None  # else the two hold each other
        self.pending.guard(self._finish)

    def _finish(self) -> None:
        answer = _finish(self._context, self._request, self._append, self._response)
        self.pending.resolve(answer)


class _CommitWait:
    """An answer that waits for flushes and for other replicas."""

    __slots__ = ("_append", "_broker", "_pending", "_remaining", "_response")

    def __init__(self, broker: Broker, append: _Append, response: ProduceResponse) -> None:
        self._broker = broker
        self._append = append
        self._response = response
        self._remaining = 0

    def answer(self, timeout_ms: int) -> Pending[Answer]:
        append = self._append
        delayed = DelayedAnswer(self._broker.timer, self._one_done)
        self._pending: Pending[Answer] = Pending(on_hurry=delayed.hurry, lets_others_pass=True)
        self._remaining = len(append.unflushed) + 1
        for row, partition in append.unflushed:
            self._flush(row, partition)
        for row, partition, offset in append.uncommitted:
            delayed.wait_for(partial(partition.when_committed, offset), partial(_settle, row))
            if partition.must_flush_before_ack:
                self._broker.flusher.flush(partition.log, partial(_flushed, partition))
        delayed.park(timeout_ms)
        return self._pending

    def _flush(self, row: PartitionProduceResponse, partition: Partition) -> None:
        def flushed(error: OSError | None) -> None:
            _flushed(partition, error)
            if error is not None:
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                row.error_message = str(error)
                self._broker.request_metrics.of(PRODUCE).failed(row.error_code)
            self._one_done()

        self._broker.flusher.flush(partition.log, flushed)

    def _one_done(self) -> None:
        self._remaining -= 1
        if not self._remaining:
            for row, _, _ in self._append.uncommitted:
                if row.error_code:
                    self._broker.request_metrics.of(PRODUCE).failed(row.error_code)
            self._pending.complete(self._append.answer(self._response))


def _settle(row: PartitionProduceResponse, code: ErrorCode) -> None:
    row.error_code = code


def _flushed(partition: Partition, error: OSError | None) -> None:
    if error is None:
        partition.flushed()
