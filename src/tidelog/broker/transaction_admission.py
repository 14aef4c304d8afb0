"""Asking the transaction coordinator, wherever it is, whether partitions may take records.

The coordinator of a transactional id leads its partition of __transaction_state. Where that is
another broker, it is asked with AddPartitionsToTxn (KIP-890): to verify, or to add. See
`coordinator.txn.admission` for which it is, and for what the outcomes mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from tidelog.controller.topic_names import TRANSACTION_STATE
from tidelog.coordinator.partition_hash import partition_for
from tidelog.coordinator.txn.admission import Admission, Admitted, admit
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.replication.pending import Pending
from tidelog.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.cluster import Cluster


def admit_wherever(
    broker: Broker,
    admission: Admission,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
) -> Admitted:
    """As `admit`. `refused` may grow until `written` has come."""
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
        try:
            response = await cluster.ask_coordinator(
                coordinator_id, AddPartitionsToTxnRequest(transactions=[transaction])
            )
        except OSError:
            self._refuse_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except asyncio.CancelledError:
            self._refuse_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            raise
        else:
            self._take(response)
        self.answered.complete(ErrorCode.NONE)

    def _take(self, response: AddPartitionsToTxnResponse) -> None:
        if response.error_code:
            self._refuse_all(ErrorCode.of(response.error_code))
            return
        for result in response.results_by_transaction:
            for topic in result.topic_results:
                for row in topic.results_by_partition:
                    code = ErrorCode.of(row.partition_error_code)
                    if code is not ErrorCode.NONE:
                        place = TopicPartition(topic.name, row.partition_index)
                        self.refused[place] = self._for_client(code)

    def _refuse_all(self, code: ErrorCode) -> None:
        self.refused.update(dict.fromkeys(self._partitions, code))

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
