"""Asking the transaction coordinator, wherever it is, whether partitions may take records.

The coordinator of a transactional id leads its partition of __transaction_state. Where that is
another broker, it is asked with AddPartitionsToTxn (KIP-890): to verify, or to add. See
`coordinator.txn.admission` for which it is, and for what the outcomes mean.

The transaction may end while the answer is under way, and its marker overtakes the answer. Records
behind the marker would begin another transaction, which nobody ends. So the answer does not count
for a partition that got a marker of the producer, or another leader, since the coordinator was
asked: CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from tidelog.controller.topic_names import TRANSACTION_STATE
from tidelog.coordinator.partition_hash import partition_for
from tidelog.coordinator.txn.admission import Admission, Admitted, admit
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.cluster import Cluster

logger = logging.getLogger(__name__)


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
        self, cluster: Cluster, coordinator_id: int, transaction: AddPartitionsToTxnTransaction
    ) -> None:
        response: AddPartitionsToTxnResponse | None = None
        try:
            response = await cluster.ask_coordinator(
                coordinator_id, AddPartitionsToTxnRequest(transactions=[transaction])
            )
        except OSError as error:
            logger.info("a transaction is not verified: %s", error)
        finally:  # whatever came of it: a client waits
            self._take(response)
            self.answered.complete(ErrorCode.NONE)

    def _take(self, response: AddPartitionsToTxnResponse | None) -> None:
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
