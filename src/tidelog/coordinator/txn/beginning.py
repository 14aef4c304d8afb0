"""What InitProducerId does to a transactional id. Pure: decides, changes nothing.

    state                       answer
    PREPARE_COMMIT, _ABORT      51 CONCURRENT_TRANSACTIONS
    ONGOING                     the transaction is aborted with the next epoch, which nobody gets
    at rest                     the next epoch; a new producer id where the epochs are used up

A producer that names its id and epoch (KIP-360) goes on after an error. It is fenced (90) if a
newer one has been here: its id must be the present one (or the one before, if that used up its
epochs) and its epoch the present one. Its epoch before the last bump is a repeated request and
gets what that bump gave.

Unlike Kafka, a producer whose epoch is out of date does not abort the transaction of a newer one.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.coordinator.txn.states import PREPARED, TransactionState
from tidelog.coordinator.txn.transaction import EPOCH_MAX, Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


class Begin(Enum):
    FENCE = "abort what is open, then decide again"
    NEXT_EPOCH = "write the next epoch, or a new producer id"
    DONE = "answer with the present epoch"


def new_transaction(transactional_id: str, producer_id: int, timeout_ms: int) -> Transaction:
    """Before its first record, which gives it epoch 0."""
    return Transaction(
        transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms, TransactionState.EMPTY
    )


def decide_begin(transaction: Transaction, expected: ProducerIdentity | None) -> Begin:
    if transaction.state in PREPARED:  # the producer may have the id that comes after the markers
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _may_be(transaction, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    is_stale = (
        expected is not None
        and transaction.producer_epoch != NO_PRODUCER_EPOCH
        and expected.producer_epoch != transaction.producer_epoch
    )
    if transaction.state is TransactionState.ONGOING:
        if is_stale:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return Begin.FENCE
    if expected is None or not is_stale:
        return Begin.NEXT_EPOCH
    if expected.producer_epoch != transaction.last_producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return Begin.NEXT_EPOCH if transaction.is_epoch_exhausted else Begin.DONE


def begun(
    transaction: Transaction,
    expected: ProducerIdentity | None,
    timeout_ms: int,
    spare_producer_id: int | None,
    now_ms: int,
) -> Transaction:
    last_producer_epoch = NO_PRODUCER_EPOCH if expected is None else transaction.producer_epoch
    if not transaction.is_epoch_exhausted:
        return transaction.with_next_epoch(last_producer_epoch, timeout_ms, now_ms)
    if spare_producer_id is None:  # it was not used up when the id was asked for
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction.with_new_producer_id(
        spare_producer_id, last_producer_epoch, timeout_ms, now_ms
    )


def _may_be(transaction: Transaction, expected: ProducerIdentity) -> bool:
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == transaction.producer_id
        or (
            expected.producer_id == transaction.previous_producer_id != NO_PRODUCER_ID
            and expected.producer_epoch >= EPOCH_MAX - 1
        )
    )
