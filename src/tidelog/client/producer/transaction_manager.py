"""Producer id, epoch and transactions, as a state machine without I/O.

    state          means                                          entered from
    UNINITIALIZED  no producer id                                 READY, ABORTABLE_ERROR,
                                                                  IN_TRANSACTION (handed over)
    INITIALIZING   InitProducerId is under way                    UNINITIALIZED, ABORTING
    READY          an id, no transaction                          INITIALIZING, COMMITTING, ABORTING
    IN_TRANSACTION records and offsets may be sent                READY
    COMMITTING     EndTxn waits for the batches, or is under way  IN_TRANSACTION
    ABORTING       the same for an abort                          IN_TRANSACTION, ABORTABLE_ERROR
    ABORTABLE      only an abort is possible                      IN_TRANSACTION, COMMITTING,
                                                                  ABORTABLE, INITIALIZING
    FATAL          nothing is possible any more                   every state

A producer without transactional.id uses the same states up to READY and stays there.

Which requests a transaction needs depends on the cluster's feature `transaction.version` (KIP-890).
Up to 1, AddPartitionsToTxn and AddOffsetsToTxn come first. From 2 on, Produce and TxnOffsetCommit
add what they touch by themselves, and every EndTxn brings the next epoch. The version is looked at
between transactions only.

Some errors leave a gap in the sequences (sequences.py). An idempotent producer then bumps its own
epoch and numbers what is in flight anew. A transactional one has its transaction aborted and gets
the next epoch from the coordinator (KIP-360), which every coordinator from Kafka 2.5 on gives;
before that such an error is fatal.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import (
    ClientError,
    IllegalState,
    InvalidRow,
    ProducerFenced,
    Serialization,
    UnsupportedByBroker,
)
from tidelog.client.producer.sequences import NO_PRODUCER, ProducerIdAndEpoch, ProducerSequences
from tidelog.client.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    OpenTransaction,
    TransactionRequest,
    TxnOffsetCommit,
    fencing_error,
)
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.offset_and_metadata import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
    )
    from tidelog.client.producer.batch import ProducerBatch
    from tidelog.client.producer.delivery import Outcome

TRANSACTION_VERSION_2: Final = 2

_AUTHORIZATION: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class State(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in need of an abort"
    FATAL_ERROR = "failed"


_ALLOWED_FROM: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.READY, State.ABORTABLE_ERROR, State.IN_TRANSACTION}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.COMMITTING, State.ABORTING}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset(
        {State.IN_TRANSACTION, State.COMMITTING, State.ABORTABLE_ERROR, State.INITIALIZING}
    ),
    State.FATAL_ERROR: frozenset(State),
}


class PendingCall(NamedTuple):
    """A call of the application that timed out, or is waited for, and must be finished first."""

    name: str
    outcome: Outcome


class TransactionManager:
    """Touched under the producer's lock. It hands out one request at a time."""

    def __init__(self, transactional_id: str | None, transaction_timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.state = State.UNINITIALIZED
        self.last_error: ClientError | None = None
        self.is_v2 = False
        # Says that records may be appended, and for which transaction: the number of the
        # transaction, 0 without transactions, -1 where none may be appended.
        self.send_token = -1 if transactional_id is not None else 0
        self.coordinator_bumps_epochs = False  # InitProducerId v3 (Kafka 2.5)
        self._seen_features = (-1, 0)  # their epoch, transaction.version
        self.sequences = ProducerSequences(is_transactional=transactional_id is not None)
        self._requests: list[tuple[int, int, TransactionRequest]] = []
        self._numbers = count()
        self._transactions_count = 0
        self._new_partitions: set[TopicPartition] = set()
        self._pending_partitions: set[TopicPartition] = set()
        self._partitions: set[TopicPartition] = set()
        # Whether the coordinator knows of the transaction, so that it has to be ended there.
        self._has_started = False
        self._pending_call: PendingCall | None = None

    def __str__(self) -> str:
        if self.transactional_id is None:
            return "an idempotent producer"
        return f"transactional.id {self.transactional_id!r}"

    # Questions

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return self.sequences.producer

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def is_completing(self) -> bool:
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def is_aborting(self) -> bool:
        return self.state == State.ABORTING

    @property
    def has_fatal_error(self) -> bool:
        return self.state == State.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self.state == State.ABORTABLE_ERROR

    @property
    def has_ongoing_transaction(self) -> bool:
        return self.state == State.IN_TRANSACTION or self.is_completing or self.has_abortable_error

    @property
    def has_requests(self) -> bool:
        return bool(self._requests or self._new_partitions)

    @property
    def has_added_partitions(self) -> bool:
        return bool(self._partitions)

    @property
    def can_recover_by_epoch(self) -> bool:
        if not self.is_transactional:
            return True
        return self.coordinator_bumps_epochs or self.is_v2

    def fenced(self) -> ProducerFenced:
        return fencing_error(f"{self} ({self.producer})")

    # What the application calls

    def initialize(self) -> Outcome:
        def begin() -> Outcome:
            self._require_no_error()
            self._move(State.INITIALIZING)
            return self._enqueued(InitProducerId(self, is_bump=False))

        return self._call("init_transactions", begin)

    def begin(self) -> None:
        self._require_transactional("begin_transaction")
        self._require_no_pending_call("begin_transaction")
        self._require_no_error()
        self._transactions_count += 1
        self._move(State.IN_TRANSACTION)

    def commit(self) -> Outcome:
        def begin() -> Outcome:
            self._require_no_error()
            self._move(State.COMMITTING)
            return self._end(is_commit=True)

        return self._call("commit_transaction", begin)

    def abort(self) -> Outcome:
        def begin() -> Outcome:
            if not self.has_abortable_error:
                self._require_no_error()
            error = self.last_error
            self._move(State.ABORTING)
            self._new_partitions.clear()
            # The coordinator does not know this producer id, so there is nothing to end there.
            is_unknown = error is not None and error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            return self._end(is_commit=False, is_known=not is_unknown)

        return self._call("abort_transaction", begin)

    def hand_over(self) -> OpenTransaction:
        """Leaves the transaction open, for somebody else to end. All its records must have been
        acknowledged. The producer needs a new epoch before it can go on."""
        what = "hand_over_transaction"
        self._require_transactional(what)
        self._require_no_pending_call(what)
        self._require_no_error()
        if self.state != State.IN_TRANSACTION or not self._has_started:
            raise IllegalState(f"{what}: {self} has no transaction with records in it")
        transactional_id = self.transactional_id
        assert transactional_id is not None
        handed = OpenTransaction(transactional_id, *self.producer, self.is_v2)
        self._move(State.UNINITIALIZED)
        self._forget_transaction()
        self.sequences.reset()
        self.sequences.producer = NO_PRODUCER
        return handed

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Outcome:
        what = "send_offsets_to_transaction"
        self._require_transactional(what)
        self._require_no_pending_call(what)
        self._require_no_error()
        if self.state != State.IN_TRANSACTION:
            raise IllegalState(f"{what}: {self} is {self.state.value}, begin a transaction first")
        if self.is_v2:
            self._has_started = True
            return self._enqueued(TxnOffsetCommit(self, offsets, group))
        return self._enqueued(AddOffsetsToTxn(self, offsets, group))

    def maybe_add_partition(self, partition: TopicPartition) -> None:
        """Called before a record is appended. Raises if the transaction takes no records now."""
        self._require_no_error()
        self._require_no_pending_call("send")
        if not self.is_transactional:
            return
        if not self.producer.is_valid:
            raise IllegalState(f"send: {self} has no producer id, call init_transactions first")
        if self.state != State.IN_TRANSACTION:
            raise IllegalState(f"send: {self} is {self.state.value}, begin a transaction first")
        if partition in self._partitions or partition in self._pending_partitions:
            return
        if self.is_v2:
            self._partitions.add(partition)
            self._has_started = True
        else:
            self._new_partitions.add(partition)

    def finished(self, outcome: Outcome) -> None:
        """The application has seen how its call ended."""
        if self._pending_call is not None and self._pending_call.outcome is outcome:
            self._pending_call = None

    def abandon_pending_call(self) -> None:
        """The application gave up on a call and wants to abort."""
        self._pending_call = None

    def _call(self, name: str, begin: Callable[[], Outcome]) -> Outcome:
        """Only the same call may resume one that timed out."""
        self._require_transactional(name)
        if self._pending_call is not None:
            if self._pending_call.name == name:
                return self._pending_call.outcome
            self._require_no_pending_call(name)
        outcome = begin()
        self._pending_call = PendingCall(name, outcome)
        return outcome

    def _require_transactional(self, what: str) -> None:
        if not self.is_transactional:
            raise IllegalState(f"{what} needs transactional.id, which is not set")

    def _require_no_pending_call(self, what: str) -> None:
        if self._pending_call is not None:
            raise IllegalState(
                f"{what}: {self._pending_call.name} timed out before, call that again first"
            )

    def _require_no_error(self) -> None:
        if not (self.has_fatal_error or self.has_abortable_error):
            return
        error = self.last_error
        assert error is not None, self.state
        if isinstance(error, ProducerFenced) and self.has_fatal_error:
            raise self.fenced() from error
        advice = "close it" if self.has_fatal_error else "abort the transaction"
        raise type(error)(
            f"{self} cannot go on after an error ({advice}): {error}", error.code
        ) from error

    def _end(self, *, is_commit: bool, is_known: bool = True) -> Outcome:
        if self._new_partitions:
            self._add_new_partitions()
        if is_known:
            end = self._enqueued(EndTxn(self, is_commit=is_commit))
            if not self.sequences.must_bump_epoch:
                return end
        return self._enqueued(InitProducerId(self, is_bump=True))

    def see_features(self, features_epoch: int, transaction_version: int) -> None:
        """What a broker says of the cluster's features; it counts from the next transaction on."""
        if features_epoch > self._seen_features[0]:
            self._seen_features = features_epoch, transaction_version

    def _adopt_features(self, *, is_first: bool) -> None:
        """The first transaction of version 2 needs an epoch that no older request has used."""
        was_v2, self.is_v2 = self.is_v2, self._seen_features[1] >= TRANSACTION_VERSION_2
        if self.is_v2 and not was_v2 and not is_first:
            self.sequences.must_bump_epoch = True

    # Transitions

    def _move(self, target: State, error: ClientError | None = None) -> None:
        if self.state not in _ALLOWED_FROM[target]:
            raise IllegalState(f"{self} is {self.state.value} and cannot become {target.value}")
        self.state = target
        self.last_error = error
        if self.is_transactional:
            is_open = target == State.IN_TRANSACTION
            self.send_token = self._transactions_count if is_open else -1
        else:
            self.send_token = -1 if target in (State.FATAL_ERROR, State.ABORTABLE_ERROR) else 0

    def become_abortable(self, error: ClientError) -> None:
        if self.state == State.ABORTING:
            return
        if self.state not in _ALLOWED_FROM[State.ABORTABLE_ERROR]:
            self.become_fatal(error)
            return
        self._move(State.ABORTABLE_ERROR, error)

    def become_fatal(self, error: ClientError) -> None:
        self._move(State.FATAL_ERROR, error)
        self._fail_requests(error)
        if self._pending_call is not None:
            self._pending_call.outcome.done(error)

    def _fail_requests(self, error: ClientError) -> None:
        requests, self._requests = self._requests, []
        for _, _, request in requests:
            request.outcome.done(error)

    def forget_authorization_error(self) -> ClientError | None:
        """Where the right to a producer id was missing, the application may try again."""
        error = self.last_error
        if not self.has_abortable_error or error is None or error.code not in _AUTHORIZATION:
            return None
        self._fail_requests(error)
        self._move(State.UNINITIALIZED)
        if self._pending_call is not None:
            self._pending_call.outcome.done(error)
        return error

    def initialized(self, producer: ProducerIdAndEpoch, *, is_bump: bool) -> None:
        self.sequences.producer = producer
        self._move(State.READY)
        if is_bump:
            self.sequences.reset()
        else:
            self._adopt_features(is_first=True)

    def epoch_given(self, producer: ProducerIdAndEpoch) -> None:
        """The answer to EndTxn brought the next epoch (transaction version 2)."""
        self.sequences.producer = producer
        self.sequences.reset()

    def complete_transaction(self, outcome: Outcome) -> None:
        """Completes `outcome` now, or once the new epoch has arrived if one has become
        necessary."""
        self._adopt_features(is_first=False)
        must_bump = self.sequences.must_bump_epoch
        self._move(State.INITIALIZING if must_bump else State.READY)
        self.sequences.must_bump_epoch = False
        self._forget_transaction()
        if must_bump and not self._requests:
            self.enqueue(InitProducerId(self, is_bump=True, outcome=outcome))
        else:
            outcome.done()

    def _forget_transaction(self) -> None:
        self._has_started = False
        self._new_partitions.clear()
        self._pending_partitions.clear()
        self._partitions.clear()

    def partitions_answered(
        self, partitions: Iterable[TopicPartition], *, were_added: bool
    ) -> None:
        self._pending_partitions.difference_update(partitions)
        if were_added:
            self._partitions.update(partitions)
            self._has_started = True

    def offsets_added(self) -> None:
        self._has_started = True

    def request_epoch_of_coordinator(self) -> None:
        """Does nothing with transaction version 2, where the end of the transaction brings an
        epoch."""
        if self.coordinator_bumps_epochs and not self.is_v2:
            self.sequences.must_bump_epoch = True

    # Requests

    def enqueue(self, request: TransactionRequest) -> None:
        heapq.heappush(self._requests, (request.priority, next(self._numbers), request))

    def _enqueued(self, request: TransactionRequest) -> Outcome:
        self.enqueue(request)
        return request.outcome

    def _add_new_partitions(self) -> None:
        self._pending_partitions |= self._new_partitions
        self._new_partitions.clear()
        self.enqueue(AddPartitionsToTxn(self, self._pending_partitions))

    def next_request(self, has_incomplete_batches: bool) -> TransactionRequest | None:
        """What to send now. EndTxn waits until every batch is answered."""
        if self._new_partitions:
            self._add_new_partitions()
        if not self._requests:
            return None
        request = self._requests[0][2]
        if request.is_end and has_incomplete_batches:
            return None
        if self.has_fatal_error or self.has_abortable_error:
            assert self.last_error is not None
            self._fail_requests(self.last_error)
            return None
        heapq.heappop(self._requests)
        if request.is_end and not self._has_started:
            # The coordinator knows of no transaction, so there is nothing to end.
            self.complete_transaction(request.outcome)
            return heapq.heappop(self._requests)[2] if self._requests else None
        return request

    def close(self, error: ClientError) -> None:
        """Fails every request and every call that waits."""
        self.become_fatal(error)

    # Batches

    def records_not_taken(self, error: ClientError, *, are_others_taken: bool) -> None:
        """`send` raised this. As in Kafka the transaction, which lacks the record, can only be
        aborted then; a call that was wrong in itself changes nothing, unless other records of it
        were taken."""
        is_misuse = isinstance(error, IllegalState | Serialization | InvalidRow)
        if self.state == State.IN_TRANSACTION and (are_others_taken or not is_misuse):
            self._take_error_of_batch(error)

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the first batch of a queue may be drained now."""
        if self.has_fatal_error or not self.producer.is_valid:
            return False
        if self.is_transactional and batch.partition not in self._partitions:
            return False
        return self.sequences.may_send(batch)

    def batch_failed(
        self, batch: ProducerBatch, error: ClientError, *, is_sequence_free: bool
    ) -> None:
        """`is_sequence_free`: the broker has surely not written the batch."""
        self._take_error_of_batch(error)
        self.sequences.remove(batch)
        if not self.has_fatal_error:
            self.sequences.failed(batch, error, is_sequence_free=is_sequence_free)

    def _take_error_of_batch(self, error: ClientError) -> None:
        if (
            error.code in (*_AUTHORIZATION, ErrorCode.PRODUCER_FENCED)
            or isinstance(error, UnsupportedByBroker)
            or error.code == ErrorCode.UNSUPPORTED_VERSION
        ):
            self.become_fatal(error)
        elif self.is_transactional:
            if not self.is_completing:
                self.request_epoch_of_coordinator()
            self.become_abortable(error)

    def maybe_resolve_sequences(self) -> None:
        given_up = self.sequences.resolve()
        if self.is_transactional:
            for partition in given_up:
                self._give_up_transaction(partition)

    def _give_up_transaction(self, partition: TopicPartition) -> None:
        error = ClientError(
            f"records for {partition} were sent and not acknowledged in time, so whether they are "
            "written is not known"
        )
        if self.can_recover_by_epoch:
            self.request_epoch_of_coordinator()
            self.become_abortable(error)
        else:
            self.become_fatal(error)

    def maybe_renew_idempotent_producer(self) -> None:
        """Bumps the epoch, or asks for an id, as an idempotent producer does on its own."""
        if self.is_transactional or self.has_fatal_error:
            return
        if self.sequences.must_bump_epoch:
            had_id = self.producer.is_valid
            self.sequences.bump_epoch()
            if had_id and not self.producer.is_valid:
                self._move(State.UNINITIALIZED)
        if self.state != State.INITIALIZING and not self.producer.is_valid:
            self._move(State.INITIALIZING)
            self.enqueue(InitProducerId(self, is_bump=False))
