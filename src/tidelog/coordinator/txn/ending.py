"""What EndTxn does to a transaction. Pure: decides, changes nothing.

The epoch a client must send: its own, and where transaction.version 2 took one at the last end,
the one before it marks a repeated request.

    state            commit                          abort
    EMPTY            48                              48; version 2: an abort of nothing
    ONGOING          PREPARE_COMMIT                  PREPARE_ABORT
    PREPARE_COMMIT   51 (repeated)                   48
    PREPARE_ABORT    48                              51 (repeated)
    COMPLETE_COMMIT  done (repeated), else 48        48; version 2, not repeated: abort of nothing
    COMPLETE_ABORT   48                              done (repeated); version 2: abort of nothing

48 INVALID_TXN_STATE, 51 CONCURRENT_TRANSACTIONS. Without version 2 the same epoch at rest is a
repeated request. An abort of nothing takes an epoch like any other: the client cannot know whether
its first record reached a partition.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.coordinator.txn.states import PREPARED, TransactionState
from tidelog.coordinator.txn.transaction import EPOCH_MAX, Transaction
from tidelog.errors import ErrorCode, KafkaError

_COMMITS: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})
_ABORTS: Final = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})


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
    is_repeated = _is_repeated(transaction, producer_id, producer_epoch)
    if transaction.producer_id != producer_id and not is_repeated:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not is_repeated and not _is_current(transaction, producer_epoch):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    state = transaction.state
    if state is TransactionState.ONGOING:
        return End.PREPARE
    is_wanted = state in (_COMMITS if committed else _ABORTS)
    if state in PREPARED:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS if is_wanted else ErrorCode.INVALID_TXN_STATE
        )
    if is_wanted and (is_repeated or not transaction.bumps_epoch):
        return End.DONE
    if not committed and bumps_epoch and not is_repeated:
        return End.PREPARE
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def _is_repeated(transaction: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Whether an end that took an epoch is asked for once more."""
    if not transaction.bumps_epoch:
        return False
    if transaction.producer_id == producer_id:
        return transaction.producer_epoch == producer_epoch + 1
    return (
        transaction.previous_producer_id == producer_id
        and producer_epoch == EPOCH_MAX - 1
        and transaction.producer_epoch == 0
    )


def _is_current(transaction: Transaction, producer_epoch: int) -> bool:
    if transaction.bumps_epoch and transaction.state in PREPARED:
        return False  # the epoch has not been given to the client yet
    return transaction.producer_epoch == producer_epoch
