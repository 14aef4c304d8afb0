"""The records of __transaction_state, as Kafka writes them.

    type 0  TransactionLogKey (transactional id)  -> TransactionLogValue, version 1

Version 1 carries what KIP-890 needs in tagged fields; Kafka 3.9 reads it and skips them. Every
record holds all there is to know of its id; the last one counts.
"""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.stored_record import CoordinatorRecord, RecordTypes
from tidelog.coordinator.txn.states import TransactionState
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from tidelog.types import TopicPartition

TRANSACTION_RECORD_TYPES: Final = RecordTypes({0: (TransactionLogKey, TransactionLogValue)})
_VERSION: Final = 1


def transaction_record(transaction: Transaction) -> CoordinatorRecord:
    is_empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if is_empty else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.last_update_timestamp_ms,
        transaction_start_timestamp_ms=transaction.start_timestamp_ms,
        client_transaction_version=transaction.client_transaction_version,
    )
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    return CoordinatorRecord(key, value, _VERSION)


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def stored_transaction(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise DecodeError(
            f"{key.transactional_id!r} has the unknown state {value.transaction_status}"
        ) from None
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_transaction_version,
    )


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
