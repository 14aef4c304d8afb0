"""DescribeTransactions v0: the state of transactional ids.

Behaviour
- Each id has its own error. Answers with an error carry producer id 0, as Kafka's do.
- Topics that the client may not DESCRIBE are left out.
Checks, in order: DESCRIBE on the id (53), id not empty (42), coordinator (14, 16), id known (105).
Unlike Kafka
- An id named twice is answered once: an answer must not be many times its request.
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from tidelog.broker.context import RequestContext
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(context, each) for each in dict.fromkeys(request.transactional_ids)
        ]
    )


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    if not context.may(DESCRIBE, TRANSACTIONAL_ID, transactional_id):
        return TransactionState(
            transactional_id=transactional_id,
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    try:
        transaction = context.broker.transactions.transaction_or_none(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    if transaction is None:
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_timestamp_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=_topics(context, transaction),
    )


def _topics(context: RequestContext, transaction: Transaction) -> list[TopicData]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    return [
        TopicData(topic=topic, partitions=ids)
        for topic, ids in by_topic.items()
        if context.may_quietly(DESCRIBE, TOPIC, topic)
    ]
