"""The transaction coordinator: what the handlers of the transaction APIs ask.

It finds the transaction of an id, lets `beginning` and `ending` decide, and writes what they
decided. The end of a transaction has three steps, each in its log before the next begins:

    1. PREPARE_COMMIT or PREPARE_ABORT in __transaction_state: from here on it will end that way
    2. a marker in each of its partitions (`markers`)
    3. COMPLETE_COMMIT or COMPLETE_ABORT in __transaction_state

A crash in between leaves it prepared; whoever loads it goes on with step 2. The client is answered
after step 1, as by Kafka; where nothing has to be waited for, all three are done by then. While a
step is not committed, requests for the id are CONCURRENT_TRANSACTIONS: what they see could be lost
with this broker.

Producer ids come from outside, because they take a wait: `needs_producer_id` says when one has to
be brought along. Refusals are KafkaErrors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.coordinator.runtime import SLICE_BYTES_MAX, CoordinatorRuntime, write_error
from tidelog.coordinator.txn.beginning import (
    Begin,
    ProducerIdentity,
    begun,
    decide_begin,
    new_transaction,
)
from tidelog.coordinator.txn.ending import End, decide_end
from tidelog.coordinator.txn.records import (
    TRANSACTION_RECORD_TYPES,
    transaction_record,
    transaction_tombstone,
)
from tidelog.coordinator.txn.retries import Retries
from tidelog.coordinator.txn.shard import TransactionShard
from tidelog.coordinator.txn.states import PREPARED, SETTLED, TransactionState
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.slices import SlicedWork
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TRANSACTION_STATE

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.txn.markers import MarkerWriter
    from tidelog.replication.flusher import LogFlusher
    from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

IDS_PER_STEP: Final = 50


class TransactionSettings(NamedTuple):
    """What the broker's configuration says about transactions."""

    max_timeout_ms: int
    transactional_id_expiration_ms: int
    verifies_partitions: bool

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
            verifies_partitions=bool(config["transaction.partition.verification.enable"]),
        )


class Ended(NamedTuple):
    """What EndTxn answers: the id and epoch of the producer's next transaction."""

    identity: ProducerIdentity
    written: Pending[ErrorCode] | None


class TransactionCoordinator:
    """Touched only on the broker loop."""

    def __init__(
        self,
        config: BrokerConfig,
        markers: MarkerWriter,
        *,
        clock: Clock,
        timer: Timer,
        flusher: LogFlusher,
        avoid_producer_ids_to: Callable[[int], object] = lambda producer_id: None,
    ) -> None:
        self.markers = markers
        self._clock = clock
        self._timer = timer
        # A directory may come with ids that the metadata store has never heard of.
        self._avoid_producer_ids_to = avoid_producer_ids_to
        self._retries = Retries(clock, timer, self._finish)
        self._work = SlicedWork(clock, timer)
        self.runtime = CoordinatorRuntime(
            TRANSACTION_STATE,
            TRANSACTION_RECORD_TYPES,
            TransactionShard,
            clock=clock,
            timer=timer,
            flusher=flusher,
            load_slice_bytes=min(
                config.get_int("transaction.state.log.load.buffer.size"), SLICE_BYTES_MAX
            ),
            on_loaded=self._loaded,
        )
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        self.settings = TransactionSettings.of(config)

    def _loaded(self, shard: TransactionShard) -> None:
        used = (
            max(each.producer_id, each.next_producer_id) for each in shard.transactions.values()
        )
        self._avoid_producer_ids_to(max(used, default=NO_PRODUCER_ID))
        end_offset = self.runtime.end_offset(shard.index)
        if self.runtime.high_watermark(shard.index) < end_offset:
            shard.uncommitted = dict.fromkeys(shard.transactions, end_offset)
        for transactional_id in shard.prepared:
            self._retries.soon(shard, transactional_id)

    # Producers

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether the next step of this id may take a new producer id."""
        transaction = self._shard(transactional_id).transactions.get(transactional_id)
        return transaction is None or transaction.is_epoch_exhausted

    def require_timeout(self, transaction_timeout_ms: int) -> None:
        if not 0 < transaction_timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    def init_producer_id(
        self,
        transactional_id: str,
        transaction_timeout_ms: int,
        expected: ProducerIdentity | None,
        spare_producer_id: int | None,
    ) -> Ended:
        self.require_timeout(transaction_timeout_ms)
        shard = self._settled_shard(transactional_id)
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            if spare_producer_id is None:  # it was there when the id was asked for
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            transaction = new_transaction(
                transactional_id, spare_producer_id, transaction_timeout_ms
            )
        decision = decide_begin(transaction, expected)
        if decision is Begin.FENCE:
            last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
            self._end(shard, transaction.fenced(last_epoch, self._clock.time_ms()))
            _log_fencing(transaction, aborted=True)
            transaction = shard.transactions[transactional_id]
            decision = decide_begin(transaction, expected)  # refuses while it is not complete
        if decision is Begin.DONE:
            return Ended(_identity(transaction), None)
        now_ms = self._clock.time_ms()
        before = shard.transactions.get(transactional_id)
        transaction = begun(
            transaction, expected, transaction_timeout_ms, spare_producer_id, now_ms
        )
        written = self._write(shard, transaction)
        if before is not None and expected is None:
            _log_fencing(before, aborted=False)
        return Ended(_identity(transaction), written)

    # Transactions

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Pending[ErrorCode] | None:
        """None: they are in the transaction; else the outcome comes later."""
        shard = self._settled_shard(transactional_id)
        present = shard.transactions.get(transactional_id)
        if present is not None and present.state in PREPARED:
            # Before its id and epoch: the client may have those that come after the markers.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        transaction = self._owned(shard, transactional_id, producer_id, producer_epoch)
        if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(
            partitions
        ):
            return None
        return self._write(shard, transaction.with_partitions(partitions, self._clock.time_ms()))

    def partitions_missing(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> set[TopicPartition]:
        """Those that the producer has not added to its transaction."""
        shard = self._settled_shard(transactional_id)
        transaction = self._owned(shard, transactional_id, producer_id, producer_epoch)
        return set(partitions) - transaction.partitions

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        bumps_epoch: bool,
        spare_producer_id: int | None = None,
    ) -> Ended:
        shard = self._settled_shard(transactional_id)
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        decision = decide_end(
            transaction, producer_id, producer_epoch, committed=committed, bumps_epoch=bumps_epoch
        )
        if decision is End.DONE:
            return Ended(_identity(transaction), None)
        now_ms = self._clock.time_ms()
        if not bumps_epoch:
            prepared = transaction.prepared(committed=committed, now_ms=now_ms)
        else:
            next_producer_id = NO_PRODUCER_ID
            if transaction.is_epoch_exhausted:
                if spare_producer_id is None:  # it was not used up when the id was asked for
                    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
                next_producer_id = spare_producer_id
            prepared = transaction.prepared_with_next_epoch(
                committed=committed, next_producer_id=next_producer_id, now_ms=now_ms
            )
        return Ended(_identity(prepared.completed(now_ms)), self._end(shard, prepared))

    def _owned(
        self, shard: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> Transaction:
        """The transaction, if it is this producer's and is not being ended."""
        transaction = shard.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if transaction.producer_epoch != producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return transaction

    # Ending

    def _end(self, shard: TransactionShard, prepared: Transaction) -> Pending[ErrorCode] | None:
        written = self._write(shard, prepared)
        transactional_id = prepared.transactional_id
        if written is None:
            self._write_markers(shard, transactional_id)
            return None

        def go_on(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._write_markers(shard, transactional_id)
            else:
                self._retries.later(shard, transactional_id)  # it may be committed yet

        return written.followed_by(go_on)

    def _write_markers(self, shard: TransactionShard, transactional_id: str) -> None:
        if not self.runtime.is_serving(shard.index, shard):
            return  # whose term is over: who leads next goes on
        prepared = shard.transactions[transactional_id]
        shard.marking.add(transactional_id)
        marked = shard.marked.setdefault(transactional_id, set())

        def written(good: bool) -> None:
            shard.marking.discard(transactional_id)
            if not self.runtime.is_serving(shard.index, shard):
                return  # an answer to the term before; the transaction may be another by now
            if good and self._complete(shard, prepared):
                shard.marked.pop(transactional_id, None)
                shard.retry_pauses.pop(transactional_id, None)
            else:
                self._retries.later(shard, transactional_id)

        def failed(cause: BaseException) -> None:
            """Retry after an unexpected error too, because nobody else ends this transaction."""
            shard.marking.discard(transactional_id)
            if isinstance(cause, Exception):  # not when the broker stops
                logger.error("the markers of %s failed", transactional_id, exc_info=cause)
            if self.runtime.is_serving(shard.index, shard):
                self._retries.later(shard, transactional_id)

        coordinator_epoch = self.runtime.leader_epoch(shard.index)
        marking: Pending[bool] = Pending()
        marking.then(written, failed)
        marking.guard(
            lambda: marking.resolve(self.markers.append_all(prepared, coordinator_epoch, marked))
        )

    def _complete(self, shard: TransactionShard, prepared: Transaction) -> bool:
        if shard.transactions.get(prepared.transactional_id) != prepared:
            return True
        try:
            self._write(shard, prepared.completed(self._clock.time_ms()))
        except KafkaError as error:
            logger.error(
                "cannot write that a transaction is complete",
                extra={
                    "transactional_id": prepared.transactional_id,
                    "error": error.message,
                },
            )
            return False
        return True

    def _finish(self, shard: TransactionShard, transactional_id: str) -> None:
        """Goes on with the end of a transaction, if that is not under way or done."""
        if not self.runtime.is_serving(shard.index, shard):
            return
        if transactional_id not in shard.prepared or transactional_id in shard.marking:
            return
        if self._is_settled(shard, transactional_id):
            self._write_markers(shard, transactional_id)
        else:
            self._retries.later(shard, transactional_id)

    # By the clock

    def abort_timed_out(self) -> None:
        now_ms = self._clock.time_ms()
        for shard in self.runtime.active_shards():
            self._work.repeat(
                f"abort transactions of {shard.index}", self._abort_all_timed_out(shard, now_ms)
            )

    def _abort_all_timed_out(self, shard: TransactionShard, now_ms: int) -> Iterator[None]:
        for transactional_id in tuple(shard.ongoing):
            if not self.runtime.is_serving(shard.index, shard):
                return
            if transactional_id in shard.ongoing:
                transaction = shard.transactions[transactional_id]
                if transaction.start_timestamp_ms + transaction.timeout_ms < now_ms:
                    self._abort_timed_out(shard, transaction, now_ms)
            yield

    def _abort_timed_out(
        self, shard: TransactionShard, transaction: Transaction, now_ms: int
    ) -> None:
        details = {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "timeout_ms": transaction.timeout_ms,
        }
        try:
            self._end(shard, transaction.timed_out(now_ms))
        except KafkaError as error:
            logger.error(
                "cannot abort a transaction past its timeout; it is tried again",
                extra={**details, "error": error.message},
            )
        else:
            logger.info(
                "aborted a transaction past its timeout",
                extra={"event": "transaction-timed-out", **details},
            )

    def remove_expired(self) -> None:
        """Forgets ids at rest that nobody has used for transactional.id.expiration.ms."""
        oldest_ms = self._clock.time_ms() - self.settings.transactional_id_expiration_ms
        for shard in self.runtime.active_shards():
            self._work.repeat(
                f"remove expired ids of {shard.index}", self._remove_expired(shard, oldest_ms)
            )

    def _remove_expired(self, shard: TransactionShard, oldest_ms: int) -> Iterator[None]:
        transactional_ids = tuple(shard.transactions)
        for start in range(0, len(transactional_ids), IDS_PER_STEP):
            if not self.runtime.is_serving(shard.index, shard):
                return
            expired = [
                transaction_tombstone(each)
                for each in transactional_ids[start : start + IDS_PER_STEP]
                if _is_expired(shard.transactions.get(each), oldest_ms)
            ]
            try:
                self.runtime.write(shard.index, expired)
            except KafkaError as error:
                logger.error(
                    "cannot remove expired transactional ids; they stay until the next try",
                    extra={"partition": shard.index, "error": error.message},
                )
                return
            yield

    # Administration

    def transaction_or_none(self, transactional_id: str) -> Transaction | None:
        return self._shard(transactional_id).transactions.get(transactional_id)

    def list_transactions(self) -> list[Transaction]:
        if self.runtime.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [
            transaction
            for shard in self.runtime.active_shards()
            for transaction in shard.transactions.values()
        ]

    # Finding and writing

    def _shard(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self.runtime.shard_for(transactional_id)

    def _settled_shard(self, transactional_id: str) -> TransactionShard:
        """For requests that go on from the last step of this id, which must be committed."""
        shard = self._shard(transactional_id)
        if not self._is_settled(shard, transactional_id):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return shard

    def _is_settled(self, shard: TransactionShard, transactional_id: str) -> bool:
        end_offset = shard.uncommitted.get(transactional_id)
        if end_offset is None:
            return True
        if self.runtime.high_watermark(shard.index) < end_offset:
            return False
        del shard.uncommitted[transactional_id]
        return True

    def _write(
        self, shard: TransactionShard, transaction: Transaction
    ) -> Pending[ErrorCode] | None:
        try:
            written = self.runtime.write(shard.index, [transaction_record(transaction)])
        except KafkaError as error:
            raise KafkaError(write_error(error.code), error.message) from error
        if transaction.last_producer_epoch != NO_PRODUCER_EPOCH:
            shard.remember_last_epoch(transaction.transactional_id, transaction.last_producer_epoch)
        if written is None:
            return None
        shard.uncommitted[transaction.transactional_id] = self.runtime.end_offset(shard.index)
        return written.map(write_error)


def _is_expired(transaction: Transaction | None, oldest_ms: int) -> bool:
    """Of an id that may have gone since it was noted."""
    return (
        transaction is not None
        and transaction.state in SETTLED
        and transaction.last_update_timestamp_ms <= oldest_ms
    )


def _identity(transaction: Transaction) -> ProducerIdentity:
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def _log_fencing(transaction: Transaction, *, aborted: bool) -> None:
    """Another producer began with the id of this one, which can write no more."""
    logger.info(
        "a producer is fenced by a newer one",
        extra={
            "event": "producer-fenced",
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "aborted": aborted,
        },
    )
