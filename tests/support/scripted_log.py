"""The partitions of a scripted broker: writes what Produce brings, by the rules of a real one.

Sequences are checked as Kafka checks them: the last five batches of a producer are known again, a
gap is out of order, an older epoch is refused, a newer one begins at 0. What happens to the next
requests is scripted; after that every request is written and answered.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tests.support.scripted_broker import Answer, HangUp, NoAnswer, ScriptedBroker, Torn
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.record.batch import SEQUENCES, BatchHeader, crc_holds
from tidelog.record.columns import columns_of, part_of
from tidelog.types import TopicPartition

KNOWN_BATCHES = 5


class Refuse(NamedTuple):
    """Nothing is written, and every partition gets the error."""

    code: ErrorCode
    log_start_offset: int = -1


class LoseAnswer:
    """Everything is written, and the connection ends without an answer."""


class TearAnswer:
    """Everything is written, and half of the answer comes."""


Step = Refuse | LoseAnswer | TearAnswer | HangUp | NoAnswer | None


class _Written(NamedTuple):
    producer_epoch: int
    base_sequence: int
    records_count: int
    base_offset: int


class ScriptedLog:
    """Of a whole cluster: every broker that `serve` is told of writes here."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque()
        self.batch_records_max = 1 << 30  # larger batches are too large
        self.records: dict[TopicPartition, list[bytes | None]] = {}
        self.headers: dict[TopicPartition, list[BatchHeader]] = {}
        self.requests: list[ProduceRequest] = []
        self.versions: list[int] = []
        self.producer_ids = 0
        self._producers: dict[tuple[TopicPartition, int], deque[_Written]] = {}

    def serve(self, broker: ScriptedBroker) -> None:
        broker.on(ProduceRequest, lambda request, version: self._produce(broker, request, version))
        broker.on(InitProducerIdRequest, self._init_producer_id)

    def _init_producer_id(self, request: InitProducerIdRequest, version: int) -> Answer:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=1000 + self.producer_ids, producer_epoch=0)

    def _produce(self, broker: ScriptedBroker, request: ProduceRequest, version: int) -> Answer:
        self.requests.append(request)
        self.versions.append(version)
        step = self.steps.popleft() if self.steps else None
        if isinstance(step, HangUp | NoAnswer):
            return step
        ids = {value: key for key, value in broker.cluster.topic_ids.items()}
        responses = []
        for topic in request.topic_data:
            name = topic.name or ids[topic.topic_id]
            rows = [
                self._refused(row, step)
                if isinstance(step, Refuse)
                else self._append(TopicPartition(name, row.index), row, version)
                for row in topic.partition_data
            ]
            responses.append(
                TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=rows)
            )
        answer = ProduceResponse(responses=responses)
        if isinstance(step, LoseAnswer):
            return HangUp()
        return Torn(answer, 11) if isinstance(step, TearAnswer) else answer

    def _refused(self, row: PartitionProduceData, step: Refuse) -> PartitionProduceResponse:
        return PartitionProduceResponse(
            index=row.index,
            error_code=step.code,
            base_offset=-1,
            log_start_offset=step.log_start_offset,
        )

    def _append(
        self, partition: TopicPartition, row: PartitionProduceData, version: int
    ) -> PartitionProduceResponse:
        assert version >= 3, version
        batch = memoryview(row.records)
        assert crc_holds(batch), partition
        header = BatchHeader(batch)
        if header.records_count > self.batch_records_max:
            return self._refused(row, Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        log = self.records.setdefault(partition, [])
        if header.producer_id >= 0:
            code, known_offset = self._check(partition, header, len(log))
            if code or known_offset is not None:
                return PartitionProduceResponse(
                    index=row.index, error_code=code, base_offset=known_offset or 0
                )
        base_offset = len(log)
        part = part_of(batch, header.attributes, base_offset, header.records_count)
        log += [record.value for record in columns_of([part])]
        self.headers.setdefault(partition, []).append(header)
        return PartitionProduceResponse(index=row.index, base_offset=base_offset)

    def _check(
        self, partition: TopicPartition, header: BatchHeader, next_offset: int
    ) -> tuple[ErrorCode, int | None]:
        key = partition, header.producer_id
        known = self._producers.setdefault(key, deque(maxlen=KNOWN_BATCHES))
        if known and header.producer_epoch < known[-1].producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, None
        if known and header.producer_epoch > known[-1].producer_epoch:
            if header.base_sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None
            known.clear()
        for written in known:
            if written[1:3] == (header.base_sequence, header.records_count):
                return ErrorCode.NONE, written.base_offset
        expected = 0
        if known:
            expected = (known[-1].base_sequence + known[-1].records_count) % SEQUENCES
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None
        known.append(
            _Written(header.producer_epoch, header.base_sequence, header.records_count, next_offset)
        )
        return ErrorCode.NONE, None
