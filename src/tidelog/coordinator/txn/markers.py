"""Writing the markers that end a transaction in each of its partitions.

Partitions that this broker leads get theirs at once; those that others lead by WriteTxnMarkers, one
request a broker. A marker for a partition of __consumer_offsets goes through the group coordinator,
whose waiting offsets it commits or drops. A partition of a topic that is gone needs none. One that
cannot take its marker now (without a leader, offline, or its coordinator is loading) leaves the
transaction unfinished: what is missing is written later. A marker may be written twice, which does
no harm: without a transaction before it, it means nothing.

A partition that has seen a newer epoch of the producer holds nothing that this marker could end:
it is passed over, with a warning. So is one that has seen a newer coordinator.

See `record.control` for the bytes.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.coordinator.txn.states import TransactionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending, all_of
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.replication.delayed_answer import await_commit
from tidelog.types import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.coordinator.group.shard import GroupShard
    from tidelog.coordinator.runtime import CoordinatorRuntime
    from tidelog.coordinator.txn.transaction import Transaction
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

_OVERTAKEN: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class OtherBrokers(Protocol):
    """Who else leads partitions, and how to have them write markers."""

    def leader_of(self, topic: str, index: int) -> int | None:
        """NO_LEADER if there is none now, None if there is no such partition."""

    def write_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> Pending[WriteTxnMarkersResponse | None]:
        """None when no answer is to be had."""


class MarkerWriter:
    """Touched only on the broker loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: CoordinatorRuntime[GroupShard],
        flusher: LogFlusher,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._flusher = flusher
        self._clock = clock
        self.others: OtherBrokers | None = None  # of a cluster

    def append(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
    ) -> Pending[ErrorCode] | None:
        """None: the marker is in the log; else the outcome comes later. KafkaError: it is not."""
        partition = self._replicas.leader(*topic_partition)
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        marker = marker_batch(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.time_ms(),
        )
        topic, index = topic_partition
        if topic == self._groups.topic:
            return self._groups.write_marker(
                index, memoryview(marker), producer_id, committed=committed
            )
        end_offset = partition.append_marker(memoryview(marker)).last_offset + 1
        written = await_commit(partition, end_offset, self._flusher)
        if written is None:
            return None

        def seen(code: ErrorCode) -> ErrorCode:
            partition.wake_fetches()
            return code

        return written.map(seen)

    def append_all(
        self, transaction: Transaction, coordinator_epoch: int, marked: set[TopicPartition]
    ) -> Pending[bool]:
        """Whether every partition has its marker. `marked` are those that have; it grows."""
        markers = _Markers(transaction, coordinator_epoch, marked)
        begun: list[Pending[None]] = []
        elsewhere: dict[int, list[TopicPartition]] = {}
        for topic_partition in sorted(transaction.partitions - marked):
            leader_id = self._other_leader(topic_partition)
            if leader_id is None:
                written = self._append_here(markers, topic_partition)
                if written is not None:
                    begun.append(written.map(partial(markers.note_outcome, topic_partition)))
            elif leader_id == NO_LEADER:
                markers.failed()
            else:
                elsewhere.setdefault(leader_id, []).append(topic_partition)
        for leader_id, partitions in elsewhere.items():
            assert self.others is not None
            answer = self.others.write_markers(leader_id, markers.request(partitions))
            begun.append(answer.map(partial(markers.answered, partitions)))
        return all_of(begun).map(lambda _: markers.are_good)

    def _other_leader(self, topic_partition: TopicPartition) -> int | None:
        """None where this broker is to look by itself."""
        partition = self._replicas.get(*topic_partition)
        if self.others is None or (partition is not None and partition.is_leader):
            return None
        leader_id = self.others.leader_of(*topic_partition)
        # This broker leads by what others say, and does not know of it yet: later.
        return NO_LEADER if leader_id == self._replicas.broker_id else leader_id

    def _append_here(
        self, markers: _Markers, topic_partition: TopicPartition
    ) -> Pending[ErrorCode] | None:
        """What is still to be waited for."""
        transaction = markers.transaction
        try:
            written = self.append(
                topic_partition,
                transaction.producer_id,
                transaction.producer_epoch,
                markers.coordinator_epoch,
                committed=markers.committed,
            )
        except KafkaError as error:
            markers.note_outcome(topic_partition, error.code)
            return None
        if written is None:
            markers.note_outcome(topic_partition, ErrorCode.NONE)
        return written


class _Markers:
    """The markers of one transaction, until all of them are in their logs."""

    __slots__ = ("_marked", "are_good", "coordinator_epoch", "transaction")

    def __init__(
        self, transaction: Transaction, coordinator_epoch: int, marked: set[TopicPartition]
    ) -> None:
        self.transaction = transaction
        self.coordinator_epoch = coordinator_epoch
        self._marked = marked
        self.are_good = True  # none is known to be missing

    @property
    def committed(self) -> bool:
        return self.transaction.state is TransactionState.PREPARE_COMMIT

    def failed(self) -> None:
        self.are_good = False

    def note_outcome(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        if code in _OVERTAKEN:
            logger.warning(
                "a partition has seen a newer epoch than that of its transaction's end",
                extra={
                    "transactional_id": self.transaction.transactional_id,
                    "partition": str(topic_partition),
                    "error": code.name,
                },
            )
        elif code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self.failed()
            return
        self._marked.add(topic_partition)

    def request(self, partitions: list[TopicPartition]) -> WriteTxnMarkersRequest:
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for topic, index in partitions:
            row = topics.setdefault(topic, WritableTxnMarkerTopic(name=topic))
            row.partition_indexes.append(index)
        marker = WritableTxnMarker(
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            transaction_result=self.committed,
            topics=list(topics.values()),
            coordinator_epoch=self.coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def answered(
        self, partitions: list[TopicPartition], response: WriteTxnMarkersResponse | None
    ) -> None:
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for marker in (() if response is None else response.markers)
            for topic in marker.topics
            for row in topic.partitions
        }
        for topic_partition in partitions:
            self._note_outcome_elsewhere(topic_partition, codes.get(topic_partition))

    def _note_outcome_elsewhere(
        self, topic_partition: TopicPartition, error_code: int | None
    ) -> None:
        """A broker that does not know the partition may not have heard of it yet. None: it has
        said nothing of it.
        """
        if error_code is None or error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.failed()
        else:
            self.note_outcome(topic_partition, ErrorCode.of(error_code))
