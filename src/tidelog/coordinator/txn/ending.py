"""What EndTxn does to a transaction. Pure: decides, changes nothing.

    state            commit                          abort
    EMPTY            48                              48; version 2: an abort of nothing
    ONGOING          PREPARE_COMMIT                  PREPARE_ABORT
    PREPARE_COMMIT   51                              51
    PREPARE_ABORT    51                              51
    COMPLETE_COMMIT  done (repeated), else 48        48; version 2, not repeated: abort of nothing
    COMPLETE_ABORT   48                              done (repeated); version 2: abort of nothing

48 INVALID_TXN_STATE, 51 CONCURRENT_TRANSACTIONS. An abort of nothing takes an epoch like any other:
the client cannot know whether its first record reached a partition.

A client of transaction.version 2 has the next epoch as soon as its EndTxn is answered, while the
markers are still being written. Until they are, it is told to wait (51) whatever id and epoch it
names: its present ones, those of a repeated request, or the new id after used-up epochs. At rest
the epoch before the present one marks a repeated request, if the last end took an epoch.

Other clients keep their epoch. Theirs must be the present one in every state, and at rest it marks
a repeated request.
"""

from __future__ import annotations

from enum import Enum

from tidelog.coordinator.txn.states import COMPLETE, PREPARED, TransactionState
from tidelog.coordinator.txn.transaction import EPOCH_MAX, Transaction
from tidelog.errors import ErrorCode, KafkaError


class End(Enum):
    PREPARE = "write the decision and the markers"
    DONE = "it has ended this way already"


def decide_end(
    transaction: Transaction,
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    bumps_epoch: bool,
) -> End:
    state = transaction.state
    if bumps_epoch and state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_repeated = bumps_epoch and _is_repeated(transaction, producer_id, producer_epoch)
    if transaction.producer_id != producer_id and not is_repeated:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch and not is_repeated:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is TransactionState.ONGOING:
        return End.PREPARE
    wanted = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    if state is wanted and (is_repeated or not bumps_epoch):
        return End.DONE
    if not committed and bumps_epoch and not is_repeated:
        return End.PREPARE
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def _is_repeated(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether an end that took an epoch is asked for once more."""
    if transaction.state not in COMPLETE or not transaction.bumps_epoch:
        return False
    if transaction.producer_id == producer_id:
        return transaction.producer_epoch == producer_epoch + 1
    return (
        transaction.previous_producer_id == producer_id
        and producer_epoch == EPOCH_MAX - 1
        and transaction.producer_epoch == 0
    )
