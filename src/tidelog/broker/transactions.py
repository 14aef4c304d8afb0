"""What handlers do about transactions.

Asking the transaction coordinator, wherever it is, whether partitions may take records
(`admit_wherever`). The coordinator of a transactional id leads its partition of
__transaction_state. Where that is another broker, it is asked with AddPartitionsToTxn (KIP-890): to
verify, or to add. See `coordinator.txn.admission` for which it is, and for what the outcomes mean.

The transaction may end while the answer is under way, and its marker overtakes the answer. Records
behind the marker would begin another transaction, which nobody ends. So the answer does not count
for a partition that got a marker of the producer, or another leader, since the coordinator was
asked: CONCURRENT_TRANSACTIONS.

The same for all partitions of a Produce request in one go (`admit_records`). Those that hold an
open transaction of the producer's epoch need not be asked for. Retriable errors of the coordinator
become NOT_ENOUGH_REPLICAS, which every client answers by sending the batch again.

And what the handlers of the transaction APIs share: error codes by version, and producer ids to
bring along.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.authorized_operations import TOPIC, WRITE
from tidelog.coordinator.runtime import partition_for
from tidelog.coordinator.txn.admission import Admission, Admitted, admit
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.record.batch import is_transactional, producer_of
from tidelog.types import NO_LEADER, TRANSACTION_STATE, TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.cluster_member import ClusterMember
    from tidelog.broker.context import RequestContext
    from tidelog.protocol.messages.produce import ProduceRequest, TopicProduceData

logger = logging.getLogger(__name__)

FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_WITH_TOPIC_IDS: Final = 13

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def admit_wherever(
    broker: Broker,
    admission: Admission,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
) -> Admitted:
    """As `admit`. `refused` may grow until `written` has come."""
    admitted = _ask_wherever(
        broker, admission, transactional_id, producer_id, producer_epoch, partitions
    )
    if admitted.written is None:
        return admitted
    return _unless_overtaken(broker, admitted.refused, admitted.written, producer_id, partitions)


def _ask_wherever(
    broker: Broker,
    admission: Admission,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
) -> Admitted:
    coordinator_id = _coordinator_elsewhere(broker, transactional_id)
    if coordinator_id is None or broker.cluster is None:
        return admit(
            broker.transactions,
            admission,
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
        )
    if coordinator_id == NO_LEADER:
        return Admitted(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE), None)
    if admission is not Admission.ADD and not broker.transactions.settings.verifies_partitions:
        return Admitted({}, None)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=admission is not Admission.ADD,
        topics=_by_topic(partitions),
    )
    question = _Question(admission, partitions)
    work = question.ask(broker.cluster, coordinator_id, transaction)
    broker.cluster.run(work)
    return Admitted(question.refused, question.answered)


def _unless_overtaken(
    broker: Broker,
    refused: dict[TopicPartition, ErrorCode],
    written: Pending[ErrorCode],
    producer_id: int,
    partitions: Collection[TopicPartition],
) -> Admitted:
    guards = {place: _guard(broker, place, producer_id) for place in partitions}

    def answered(code: ErrorCode) -> ErrorCode:
        for place, before in guards.items():
            if place not in refused and _guard(broker, place, producer_id) != before:
                refused[place] = ErrorCode.CONCURRENT_TRANSACTIONS
        return code

    return Admitted(refused, written.map(answered))


def _guard(broker: Broker, place: TopicPartition, producer_id: int) -> tuple[int, int] | None:
    """Changes when a transaction of the producer ends in a partition, here or at another leader."""
    partition = broker.replicas.get(*place)
    if partition is None:
        return None
    return partition.leader_epoch, partition.log.producers.markers_of(producer_id)


def _coordinator_elsewhere(broker: Broker, transactional_id: str) -> int | None:
    """None where this broker is to look by itself."""
    count = broker.transactions.runtime.partition_count
    if broker.cluster is None or not count:
        return None
    index = partition_for(transactional_id, count)
    partition = broker.replicas.get(TRANSACTION_STATE, index)
    if partition is not None and partition.is_leader:
        return None
    leader_id = broker.cluster.leader_of(TRANSACTION_STATE, index)
    return None if leader_id == broker.broker_id else leader_id


class _Question:
    """One request to another broker, and its outcome."""

    def __init__(self, admission: Admission, partitions: Collection[TopicPartition]) -> None:
        self._admission = admission
        self._partitions = partitions
        self.refused: dict[TopicPartition, ErrorCode] = {}
        self.answered: Pending[ErrorCode] = Pending()

    async def ask(
        self,
        cluster: ClusterMember,
        coordinator_id: int,
        transaction: AddPartitionsToTxnTransaction,
    ) -> None:
        response: AddPartitionsToTxnResponse | None = None
        try:
            response = await cluster.ask_coordinator(
                coordinator_id, AddPartitionsToTxnRequest(transactions=[transaction])
            )
        except OSError as error:
            logger.info("a transaction is not verified: %s", error)
        finally:  # whatever came of it: a client waits
            self._note_refusals(response)
            self.answered.complete(ErrorCode.NONE)

    def _note_refusals(self, response: AddPartitionsToTxnResponse | None) -> None:
        """A partition of which nothing is said is not admitted."""
        default, codes = ErrorCode.COORDINATOR_NOT_AVAILABLE, {}
        if response is not None and response.error_code:
            default = ErrorCode.of(response.error_code)
        elif response is not None:
            codes = {
                TopicPartition(topic.name, row.partition_index): row.partition_error_code
                for result in response.results_by_transaction
                for topic in result.topic_results
                for row in topic.results_by_partition
            }
        for place in self._partitions:
            code = ErrorCode.of(codes.get(place, default))
            if code is not ErrorCode.NONE:
                self.refused[place] = self._for_client(code)

    def _for_client(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if (
            code is ErrorCode.TRANSACTION_ABORTABLE
            and self._admission is Admission.VERIFY_FOR_OLD_CLIENT
        ):
            return ErrorCode.INVALID_TXN_STATE
        return code


def _by_topic(partitions: Collection[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, index in partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(index)
    return list(topics.values())


# A Produce request


class ProduceAdmission(NamedTuple):
    refused: dict[TopicPartition, KafkaError]
    written: Pending[ErrorCode] | None  # to be waited for before anything is appended


def admit_records(
    context: RequestContext, request: ProduceRequest, transactional_id: str
) -> ProduceAdmission:
    """KafkaError: nothing of the request may be appended.

    Topics that the client may not write to do not get into the transaction.
    """
    broker, version = context.broker, context.api_version
    producers: set[tuple[int, int]] = set()
    unknown: list[TopicPartition] = []  # those without an open transaction of this epoch
    for topic in request.topic_data:
        name = _name(broker, topic, version)
        if not context.may_quietly(WRITE, TOPIC, name):
            continue
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
    admission = Admission.of(version, FIRST_PRODUCE_WITH_ABORTABLE)
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
    if version < FIRST_PRODUCE_WITH_TOPIC_IDS:
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


# The transaction APIs


def fenced_in_version(code: ErrorCode, version: int, first_with_fenced: int) -> ErrorCode:
    """Old clients do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def spare_producer_id(context: RequestContext, transactional_id: str) -> int | None:
    """A new producer id if this transactional id may need one. KafkaErrors pass."""
    if not context.broker.transactions.needs_producer_id(transactional_id):
        return None
    return await context.broker.producer_ids.next()
