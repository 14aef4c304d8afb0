"""What is known of one transactional id: a value. Each step makes the next value.

Producer epochs are 0 to 32767. The last one is kept for fencing: a producer is given at most 32766
less one, and then a new producer id. With transaction.version 2 (KIP-890) every end of a
transaction takes an epoch; the markers carry the new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.coordinator.txn.states import ALLOWED_FROM, TransactionState
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

EPOCH_MAX: Final = 32767
NO_TIMESTAMP: Final = -1
# The level of transaction.version from which on each end of a transaction takes an epoch.
BUMPS_EPOCH: Final = 2


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP
    last_update_timestamp_ms: int = NO_TIMESTAMP
    # Whose epochs were used up, so that a repeated request of it is known.
    previous_producer_id: int = NO_PRODUCER_ID
    # Takes over when the transaction is complete, because the epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    # Of the client that ended the transaction; 0 for those that keep their epoch.
    client_transaction_version: int = 0
    # The producer's epoch before it asked for a new one, so that a repeated request is known. Not
    # in the log: after a restart nobody can be sure that no other producer came in between.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def bumps_epoch(self) -> bool:
        return self.client_transaction_version >= BUMPS_EPOCH

    def _step(self, state: TransactionState) -> Transaction:
        assert self.state in ALLOWED_FROM[state], (self.transactional_id, self.state, state)
        return self._replace(state=state)

    # For a producer that begins

    def with_next_epoch(
        self, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        assert not self.is_epoch_exhausted, self
        return self._for_producer(
            self.producer_id, self.producer_epoch + 1, last_producer_epoch, timeout_ms, now_ms
        )

    def with_new_producer_id(
        self, producer_id: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return self._for_producer(producer_id, 0, last_producer_epoch, timeout_ms, now_ms)

    def _for_producer(
        self, producer_id: int, epoch: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return self._step(TransactionState.EMPTY)._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_timestamp_ms=NO_TIMESTAMP,
            last_update_timestamp_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            client_transaction_version=0,
            last_producer_epoch=last_producer_epoch,
        )

    # Within a transaction

    def with_partitions(self, added: Iterable[TopicPartition], now_ms: int) -> Transaction:
        begins = self.state is not TransactionState.ONGOING
        return self._step(TransactionState.ONGOING)._replace(
            partitions=frozenset(added) if begins else self.partitions.union(added),
            start_timestamp_ms=now_ms if begins else self.start_timestamp_ms,
            last_update_timestamp_ms=now_ms,
            client_transaction_version=0,
        )

    # At its end

    def prepared(self, *, committed: bool, now_ms: int) -> Transaction:
        """For a client that keeps its epoch."""
        target = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        return self._step(target)._replace(
            last_update_timestamp_ms=now_ms,
            start_timestamp_ms=now_ms
            if self.state is not TransactionState.ONGOING
            else self.start_timestamp_ms,
            client_transaction_version=0,
        )

    def prepared_with_next_epoch(
        self, *, committed: bool, next_producer_id: int, now_ms: int
    ) -> Transaction:
        return self.prepared(committed=committed, now_ms=now_ms)._replace(
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            client_transaction_version=BUMPS_EPOCH,
        )

    def fenced(self, last_producer_epoch: int, now_ms: int) -> Transaction:
        """Aborted for another producer: the epoch of the present one is out of date from now on."""
        assert self.producer_epoch < EPOCH_MAX, self
        return self.prepared(committed=False, now_ms=now_ms)._replace(
            producer_epoch=self.producer_epoch + 1, last_producer_epoch=last_producer_epoch
        )

    def timed_out(self, now_ms: int) -> Transaction:
        """Aborted without its producer, which goes on with the next epoch if it is of version 2
        and aborts, too. Used-up epochs leave it none.
        """
        if self.is_epoch_exhausted:
            return self.fenced(NO_PRODUCER_EPOCH, now_ms)
        return self.prepared_with_next_epoch(
            committed=False, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )

    def completed(self, now_ms: int) -> Transaction:
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        target = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        done = self._step(target)._replace(partitions=frozenset(), last_update_timestamp_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return done._replace(
            producer_id=self.next_producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
