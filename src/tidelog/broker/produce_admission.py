"""Which partitions of a Produce request may take its transactional records (KIP-890).

Partitions that hold an open transaction of the producer's epoch may; the others are asked for at
the transaction coordinator, all in one go; see `coordinator.txn.admission`.

Retriable errors of the coordinator become NOT_ENOUGH_REPLICAS, which every client answers by
sending the batch again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.transactions import admit_wherever
from tidelog.coordinator.txn.admission import Admission
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.record.batch import (
    is_transactional,
    producer_of,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.protocol.messages.produce import ProduceRequest, TopicProduceData

FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class ProduceAdmission(NamedTuple):
    refused: dict[TopicPartition, KafkaError]
    written: Pending[ErrorCode] | None  # to be waited for before anything is appended


def admit_records(
    broker: Broker, request: ProduceRequest, transactional_id: str, version: int
) -> ProduceAdmission:
    """KafkaError: nothing of the request may be appended."""
    producers: set[tuple[int, int]] = set()
    unknown: list[TopicPartition] = []  # those without an open transaction of this epoch
    for topic in request.topic_data:
        name = _name(broker, topic, version)
        for row in topic.partition_data:
            partition = broker.replicas.get(name, row.index)
            if partition is None or row.records is None or not is_transactional(row.records):
                continue
            producer_id, producer_epoch, _ = producer_of(row.records)
            producers.add((producer_id, producer_epoch))
            if not partition.log.producers.is_in_transaction(producer_id, producer_epoch):
                unknown.append(partition.topic_partition)
    if len(producers) > 1:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The records are of more than one producer."
        )
    if not unknown:
        return ProduceAdmission({}, None)
    admission = Admission.of(version, FIRST_VERSION_WITH_ABORTABLE)
    producer_id, producer_epoch = producers.pop()
    admitted = admit_wherever(
        broker, admission, transactional_id, producer_id, producer_epoch, unknown
    )
    if admitted.written is None:
        refused = {place: _refusal(code) for place, code in admitted.refused.items()}
        return ProduceAdmission(refused, None)
    return _later(admitted.refused, admitted.written)


def _later(codes: dict[TopicPartition, ErrorCode], written: Pending[ErrorCode]) -> ProduceAdmission:
    refused: dict[TopicPartition, KafkaError] = {}

    def answered(code: ErrorCode) -> ErrorCode:
        refused.update({place: _refusal(refusal) for place, refusal in codes.items()})
        return code

    return ProduceAdmission(refused, written.map(answered))


def _name(broker: Broker, topic: TopicProduceData, version: int) -> str:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    image = broker.topics.by_id.get(topic.topic_id)
    return "" if image is None else image.name


def _refusal(code: ErrorCode) -> KafkaError:
    if code in _RETRIABLE:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"It cannot be verified now that the partition is in the transaction: {code.name}.",
        )
    if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return KafkaError(code, "The partition was not added to the transaction.")
    return KafkaError(code)
