"""The requests of a transactional or idempotent producer, and what each answer means. No I/O.

The sender takes them from the TransactionManager one at a time, sends the message to the
coordinator that `group_id` and `needs_coordinator` name, and calls `take_answer`, or `lost` when no
answer came. An answer completes the request, puts it back to be sent again, or ends the transaction
or the producer:

    coordinator moved or unknown (15, 16)       look for it, send again
    an error that may pass                      send again
    fenced (47, 90)                             fatal
    state or id not as the producer thinks      fatal, or abortable where the epoch can be bumped
    an error of the one operation (topic,       abortable: the transaction can be aborted and the
    group, generation)                          producer goes on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tidelog.client.consumer.offset_and_metadata import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    wire_epoch,
)
from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    CommitFailed,
    ProducerFenced,
    UnreadableAnswer,
    refused,
)
from tidelog.client.network.coordinators import COORDINATOR_MOVED
from tidelog.client.producer.delivery import Outcome
from tidelog.client.producer.sequences import ProducerIdAndEpoch
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.types import NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.producer.transaction_manager import TransactionManager
    from tidelog.protocol.message import Message

# The last versions of transactions whose partitions are added by requests of their own.
TXN_OFFSET_COMMIT_V1: Final = 4
END_TXN_V1: Final = 4

_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_UNKNOWN_PRODUCER: Final = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FIRST_PARTITIONS_BACKOFF_S: Final = 0.02


class OpenTransaction(NamedTuple):
    """A transaction that its producer has handed over: whoever has this may end it. `is_v2` says
    by which version of the protocol (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_v2: bool


class TransactionRequest:
    """Completes `outcome` when it has succeeded or failed for good. Touched under the producer's
    lock."""

    is_end: ClassVar[bool] = False
    name: ClassVar[str]

    __slots__ = ("at_most", "attempts", "group_id", "manager", "must_find_coordinator", "outcome")

    def __init__(self, manager: TransactionManager, outcome: Outcome | None = None) -> None:
        self.manager = manager
        self.outcome = outcome or Outcome()
        self.attempts = 0  # that failed
        self.at_most: int | None = None  # version of the request
        self.group_id: str | None = None  # whose coordinator is asked; None: the transaction's
        self.must_find_coordinator = False

    @property
    def priority(self) -> int:
        """A producer id before everything else, the end of a transaction last, a new epoch after
        the end."""
        return 1

    @property
    def needs_coordinator(self) -> bool:
        """False: any broker will do."""
        return True

    @property
    def backoff_max_s(self) -> float | None:
        """Where a shorter wait than the usual one is enough."""
        return None

    def message(self) -> Message:
        raise NotImplementedError

    def take_answer(self, response: Message) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """No answer: the broker may be gone."""
        self._find_coordinator_and_retry()

    def coordinator_refused(self, error: ClientError) -> None:
        """Looking for the coordinator ended with an error that will not pass."""
        if error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED or (
            error.code == ErrorCode.TRANSACTION_ABORTABLE
        ):
            self._abortable(error)
        else:
            self.fatal(error)

    def fatal(self, error: ClientError) -> None:
        self.outcome.done(error)
        self.manager.become_fatal(error)

    def _abortable(self, error: ClientError) -> None:
        self.outcome.done(error)
        self.manager.become_abortable(error)

    def _abortable_if_possible(self, error: ClientError) -> None:
        """Makes the error abortable if the coordinator can give a new epoch, and fatal
        otherwise."""
        if self.manager.can_recover_by_epoch:
            self.manager.request_epoch_of_coordinator()
            self._abortable(error)
        else:
            self.fatal(error)

    def _retry(self) -> None:
        self.attempts += 1
        self.manager.enqueue(self)

    def _find_coordinator_and_retry(self) -> None:
        self.must_find_coordinator = True
        self._retry()

    def _refused(self, code: int, detail: str | None = None) -> BrokerRefused:
        return refused(f"{self.name} of {self.manager}", code, detail)

    def _retried(self, code: ErrorCode) -> bool:
        """Puts the request back into the queue if the error may pass, and returns whether it
        did."""
        if code in COORDINATOR_MOVED:
            self._find_coordinator_and_retry()
        elif code.retriable:
            self._retry()
        else:
            return False
        return True

    def _take_common(self, code: ErrorCode) -> None:
        """Errors that mean the same in every answer of the transaction coordinator."""
        if code in _FENCED:
            self.fatal(self.manager.fenced())
        elif code in _UNKNOWN_PRODUCER:
            self._abortable_if_possible(self._refused(code))
        elif code == ErrorCode.TRANSACTION_ABORTABLE:
            self._abortable(self._refused(code))
        else:
            self.fatal(self._refused(code))


class InitProducerId(TransactionRequest):
    """A producer id, or the next epoch of the one there is (KIP-360)."""

    name = "InitProducerId"

    __slots__ = ("_is_bump",)

    def __init__(
        self, manager: TransactionManager, *, is_bump: bool, outcome: Outcome | None = None
    ) -> None:
        super().__init__(manager, outcome)
        self._is_bump = is_bump

    @property
    def priority(self) -> int:
        return 3 if self._is_bump else 0

    @property
    def needs_coordinator(self) -> bool:
        return self.manager.is_transactional

    def message(self) -> Message:
        request = InitProducerIdRequest(
            transactional_id=self.manager.transactional_id,
            transaction_timeout_ms=self.manager.transaction_timeout_ms,
        )
        if self._is_bump:
            request.producer_id, request.producer_epoch = self.manager.producer
        return request

    def take_answer(self, response: Message) -> None:
        assert isinstance(response, InitProducerIdResponse), response
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.NONE:
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            if not producer.is_valid or producer.producer_epoch < 0:
                self.fatal(UnreadableAnswer(f"{self.name} was answered with {producer}"))
                return
            self.manager.initialized(producer, is_bump=self._is_bump)
            self.outcome.done()
        elif self._retried(code):
            return
        elif code in (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            self._abortable(self._refused(code))
        elif code in _UNKNOWN_PRODUCER:
            self.fatal(self._refused(code))
        else:
            self._take_common(code)


class AddPartitionsToTxn(TransactionRequest):
    name = "AddPartitionsToTxn"

    __slots__ = ("_is_first", "_partitions")

    def __init__(self, manager: TransactionManager, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(manager)
        self._partitions = frozenset(partitions)
        self._is_first = False

    @property
    def backoff_max_s(self) -> float | None:
        """The transaction before may still be ending, which does not take long."""
        return _FIRST_PARTITIONS_BACKOFF_S if self._is_first else None

    def message(self) -> Message:
        producer_id, producer_epoch = self.manager.producer
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._partitions):
            topics.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.manager.transactional_id or "",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def take_answer(self, response: Message) -> None:
        assert isinstance(response, AddPartitionsToTxnResponse), response
        codes = {
            TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        self._is_first = False
        refusals: list[BrokerRefused] = []
        for partition in sorted(self._partitions):
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code == ErrorCode.NONE:
                continue
            if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                self._is_first = not self.manager.has_added_partitions
            if self._retried(code):
                return
            if not self._is_of_one_partition(code):
                self._take_common(code)
                return
            refusals.append(refused(f"{self.name} of {partition}", code))
        self.manager.partitions_answered(self._partitions, were_added=not refusals)
        if refusals:
            self._abortable(min(refusals, key=_explains_least))
        else:
            self.outcome.done()

    def _is_of_one_partition(self, code: ErrorCode) -> bool:
        return code not in (
            *_FENCED,
            *_UNKNOWN_PRODUCER,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.INVALID_TXN_STATE,
        )


def _explains_least(refusal: BrokerRefused) -> bool:
    """ "Not attempted" comes after the error that kept the others from being attempted."""
    return refusal.code == ErrorCode.OPERATION_NOT_ATTEMPTED


class AddOffsetsToTxn(TransactionRequest):
    """Makes the group's partition of __consumer_offsets part of the transaction."""

    name = "AddOffsetsToTxn"

    __slots__ = ("_group", "_offsets")

    def __init__(
        self,
        manager: TransactionManager,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager)
        self._offsets = offsets
        self._group = group

    def message(self) -> Message:
        producer_id, producer_epoch = self.manager.producer
        return AddOffsetsToTxnRequest(
            transactional_id=self.manager.transactional_id or "",
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=self._group.group_id,
        )

    def take_answer(self, response: Message) -> None:
        assert isinstance(response, AddOffsetsToTxnResponse), response
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.NONE:
            self.manager.offsets_added()
            commit = TxnOffsetCommit(self.manager, self._offsets, self._group, self.outcome)
            self.manager.enqueue(commit)
        elif self._retried(code):
            return
        elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._abortable(refused(f"group {self._group.group_id}", code))
        else:
            self._take_common(code)


class TxnOffsetCommit(TransactionRequest):
    name = "TxnOffsetCommit"

    __slots__ = ("_group", "_pending")

    def __init__(
        self,
        manager: TransactionManager,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(manager, outcome)
        self._pending = dict(offsets)
        self._group = group
        self.group_id = group.group_id
        self.at_most = None if manager.is_v2 else TXN_OFFSET_COMMIT_V1

    def message(self) -> Message:
        producer_id, producer_epoch = self.manager.producer
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in self._pending.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=wire_epoch(offset.leader_epoch),
                    committed_metadata=offset.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self.manager.transactional_id or "",
            group_id=self._group.group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=self._group.generation_id,
            member_id=self._group.member_id,
            group_instance_id=self._group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def take_answer(self, response: Message) -> None:
        assert isinstance(response, TxnOffsetCommitResponse), response
        has_moved = False
        for topic in response.topics:
            for row in topic.partitions:
                code = ErrorCode.of(row.error_code)
                if code == ErrorCode.NONE:
                    self._pending.pop(TopicPartition(topic.name, row.partition_index), None)
                elif code in COORDINATOR_MOVED or code == ErrorCode.REQUEST_TIMED_OUT:
                    has_moved = True
                elif not code.retriable:
                    self._take_refusal(code)
                    return
        if not self._pending:
            self.outcome.done()
        elif has_moved:
            self._find_coordinator_and_retry()
        else:
            self._retry()

    def _take_refusal(self, code: ErrorCode) -> None:
        if code in _FENCED:
            self.fatal(self.manager.fenced())
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._abortable(
                CommitFailed(
                    f"offsets of group {self._group.group_id}: member {self._group.member_id!r} of "
                    f"generation {self._group.generation_id} is not in the group any more "
                    f"({code.name})",
                    code,
                )
            )
        elif code in (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.TRANSACTION_ABORTABLE,
        ):
            self._abortable(refused(f"offsets of group {self._group.group_id}", code))
        else:
            self.fatal(self._refused(code))


class EndTxn(TransactionRequest):
    """Commit or abort. With transaction version 2 the answer has the next epoch (KIP-890)."""

    name = "EndTxn"
    is_end = True

    __slots__ = ("_is_commit",)

    def __init__(self, manager: TransactionManager, *, is_commit: bool) -> None:
        super().__init__(manager)
        self._is_commit = is_commit
        self.at_most = None if manager.is_v2 else END_TXN_V1

    @property
    def priority(self) -> int:
        return 2

    def message(self) -> Message:
        producer_id, producer_epoch = self.manager.producer
        return EndTxnRequest(
            transactional_id=self.manager.transactional_id or "",
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=self._is_commit,
        )

    def take_answer(self, response: Message) -> None:
        assert isinstance(response, EndTxnResponse), response
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.NONE:
            if response.producer_id != NO_PRODUCER_ID:
                bumped = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self.manager.epoch_given(bumped)
            self.manager.complete_transaction(self.outcome)
        elif not self._retried(code):
            self._take_common(code)


def fencing_error(whose: str) -> ProducerFenced:
    return ProducerFenced(
        f"{whose} is fenced: a newer producer has the same transactional.id, or the transaction "
        "timed out",
        ErrorCode.PRODUCER_FENCED,
    )
