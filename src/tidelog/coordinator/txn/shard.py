"""The transactions of one partition of __transaction_state, and how its records make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.txn.records import stored_transaction
from tidelog.coordinator.txn.states import PREPARED, TransactionState
from tidelog.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from tidelog.coordinator.stored_record import CoordinatorRecord
    from tidelog.coordinator.txn.transaction import Transaction
    from tidelog.types import TopicPartition


class TransactionShard:
    """Touched only on the broker loop; changed by replaying alone."""

    __slots__ = (
        "index",
        "marked",
        "marking",
        "ongoing",
        "prepared",
        "retry_pauses",
        "retrying",
        "transactions",
        "uncommitted",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()  # ids of those that are ONGOING
        self.prepared: set[str] = set()  # ids of those that are being ended
        # Ids whose last step may not be committed yet, with the offset after it.
        self.uncommitted: dict[str, int] = {}
        # Ids of transactions being ended, with the partitions that have their markers.
        self.marked: dict[str, set[TopicPartition]] = {}
        self.marking: set[str] = set()  # those whose markers are being written in this term
        self.retrying: set[str] = set()  # those that are to be tried again; see `retries`
        self.retry_pauses: dict[str, float] = {}  # seconds before the next try, if another follows

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        self.ongoing.discard(transactional_id)
        self.prepared.discard(transactional_id)
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction = stored_transaction(key, value)
        self.transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self.ongoing.add(transactional_id)
        elif transaction.state in PREPARED:
            self.prepared.add(transactional_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """There are none in this topic."""

    def remember_last_epoch(self, transactional_id: str, last_producer_epoch: int) -> None:
        """What the log does not hold of the last step; see `Transaction`."""
        transaction = self.transactions[transactional_id]
        self.transactions[transactional_id] = transaction._replace(
            last_producer_epoch=last_producer_epoch
        )
