"""The transactions of one partition of __transaction_state, and how its records make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.txn.records import stored_transaction
from tidelog.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from tidelog.coordinator.stored_record import CoordinatorRecord
    from tidelog.coordinator.txn.transaction import Transaction
    from tidelog.types import TopicPartition


class TransactionShard:
    """Touched only on the broker loop; changed by replaying alone."""

    __slots__ = ("index", "marked", "marking", "transactions", "uncommitted")

    def __init__(self, index: int) -> None:
        self.index = index
        self.transactions: dict[str, Transaction] = {}
        # Ids whose last step may not be committed yet, with the offset after it.
        self.uncommitted: dict[str, int] = {}
        # Ids of transactions being ended, with the partitions that have their markers.
        self.marked: dict[str, set[TopicPartition]] = {}
        self.marking: set[str] = set()  # those whose markers are being written in this term

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        self.transactions[key.transactional_id] = stored_transaction(key, value)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """There are none in this topic."""

    def remember_last_epoch(self, transactional_id: str, last_producer_epoch: int) -> None:
        """What the log does not hold of the last step; see `Transaction`."""
        transaction = self.transactions[transactional_id]
        self.transactions[transactional_id] = transaction._replace(
            last_producer_epoch=last_producer_epoch
        )
