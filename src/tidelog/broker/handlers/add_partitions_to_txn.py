"""AddPartitionsToTxn v0-v5: partitions that a transaction is going to write to.

Behaviour
- All partitions of a transaction are added, or none: where one does not exist (3), the others are
  OPERATION_NOT_ATTEMPTED.
- v4+ names many transactions and is for brokers alone: with verify_only it asks whether the
  partitions have been added (KIP-890); one that has not is TRANSACTION_ABORTABLE.
- Before v4 internal topics are refused (29): the requests are clients', which put offsets into a
  transaction with AddOffsetsToTxn. One refused partition keeps out the others, as above.
Checks, in order: CLUSTER_ACTION from v4 on (31), before that WRITE on the transactional id (53) and
the topics (29), partitions exist (3), transactional id not empty (42), coordinator (14, 16), no end
under way (51), id known and its producer id (49), epoch (90); with verify_only the end comes last.
Versions: v2 PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH), v3 flexible, v4 many transactions,
v5 TRANSACTION_ABORTABLE.
Unlike Kafka
- A v4+ request without transactions, which Kafka never answers, is INVALID_REQUEST.
- One transactional id named twice is answered twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.broker.authorized_operations import CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE
from tidelog.broker.context import RequestContext
from tidelog.broker.transactions import fenced_in_version
from tidelog.controller.topic_names import is_internal
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending, all_of
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.types import TopicPartition

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_MANY: Final = 4

Codes = Mapping[TopicPartition, ErrorCode]


def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
    if context.api_version < FIRST_VERSION_WITH_MANY:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    else:
        if not context.may_on_cluster(CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        transactions = request.transactions
        if not transactions:
            return AddPartitionsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    adding = _Adding(context, transactions)
    return adding.begin()


class _Adding:
    """One request: the outcome of each transaction, and those of them that are still to come."""

    def __init__(
        self, context: RequestContext, transactions: Sequence[AddPartitionsToTxnTransaction]
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._codes: list[Codes] = [{} for _ in transactions]
        self._waiting: list[Pending[None]] = []

    def begin(self) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
        for place, transaction in enumerate(self._transactions):
            self._add(place, transaction)
        if not self._waiting:
            return self._response()
        return all_of(self._waiting).map(lambda _: self._response())

    def _add(self, place: int, transaction: AddPartitionsToTxnTransaction) -> None:
        partitions = [
            TopicPartition(topic.name, index)
            for topic in transaction.topics
            for index in topic.partitions
        ]
        codes = self._codes[place] = self._refused(transaction.transactional_id, partitions)
        if codes:
            return
        coordinator = self._context.broker.transactions
        named = (
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
        )
        try:
            if transaction.verify_only:
                not_added = coordinator.partitions_missing(*named)
                self._codes[place] = dict.fromkeys(not_added, ErrorCode.TRANSACTION_ABORTABLE)
                return
            written = coordinator.add_partitions(*named)
        except KafkaError as error:
            self._codes[place] = dict.fromkeys(partitions, error.code)
            return
        if written is not None:

            def finished(code: ErrorCode) -> None:
                self._codes[place] = dict.fromkeys(partitions, code)

            self._waiting.append(written.map(finished))

    def _refused(self, transactional_id: str, partitions: Sequence[TopicPartition]) -> Codes:
        context = self._context
        topics = context.broker.topics.topics
        is_from_client = context.api_version < FIRST_VERSION_WITH_MANY
        if is_from_client and not context.may(WRITE, TRANSACTIONAL_ID, transactional_id):
            return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        refused = {}
        for topic, index in partitions:
            image = topics.get(topic)
            if is_from_client and (is_internal(topic) or not context.may(WRITE, TOPIC, topic)):
                refused[TopicPartition(topic, index)] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image is None or not 0 <= index < len(image.partitions):
                refused[TopicPartition(topic, index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not refused:
            return {}
        return {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}

    def _response(self) -> AddPartitionsToTxnResponse:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[self._topic(topic, codes) for topic in transaction.topics],
            )
            for transaction, codes in zip(self._transactions, self._codes, strict=True)
        ]
        if self._context.api_version < FIRST_VERSION_WITH_MANY:
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=results[0].topic_results
            )
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    def _topic(self, topic: AddPartitionsToTxnTopic, codes: Codes) -> AddPartitionsToTxnTopicResult:
        version = self._context.api_version
        return AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=fenced_in_version(
                        codes.get(TopicPartition(topic.name, index), ErrorCode.NONE),
                        version,
                        FIRST_VERSION_WITH_FENCED,
                    ),
                )
                for index in topic.partitions
            ],
        )
