"""Writing the markers that end a transaction in each of its partitions.

A marker for a partition of __consumer_offsets goes through the group coordinator, whose waiting
offsets it commits or drops. A partition of a topic that is gone needs none. One that cannot take
its marker now (offline, or its coordinator is loading) leaves the transaction unfinished: all its
markers are written again later, which does no harm, since a marker without a transaction before it
means nothing.

A partition that has seen a newer epoch of the producer holds nothing that this marker could end:
it is passed over, with a warning.

See `record.control` for the bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.txn.states import TransactionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.replication.pending import Pending

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.coordinator.group.shard import GroupShard
    from tidelog.coordinator.runtime import CoordinatorRuntime
    from tidelog.coordinator.txn.transaction import Transaction
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

_NOTHING_TO_END: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH}
)


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
        partition.append_marker(memoryview(marker))
        return self._flushed(partition) if partition.flush_due else None

    def _flushed(self, partition: Partition) -> Pending[ErrorCode]:
        pending: Pending[ErrorCode] = Pending()

        def finished(error: OSError | None) -> None:
            if error is None:
                partition.flushed()
                partition.wake_fetches()
            pending.complete(ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR)

        self._flusher.flush(partition.log, finished)
        return pending

    def append_all(
        self, transaction: Transaction, coordinator_epoch: int, finished: Callable[[bool], object]
    ) -> None:
        """`finished` is told, once, whether every partition has its marker."""
        markers = _Markers(finished)
        for topic_partition in sorted(transaction.partitions):
            try:
                written = self.append(
                    topic_partition,
                    transaction.producer_id,
                    transaction.producer_epoch,
                    coordinator_epoch,
                    committed=transaction.state is TransactionState.PREPARE_COMMIT,
                )
            except KafkaError as error:
                if error.code not in _NOTHING_TO_END:
                    markers.failed()
                elif error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                    logger.warning(
                        "a partition has seen a newer epoch than that of its transaction's end",
                        extra={
                            "transactional_id": transaction.transactional_id,
                            "partition": str(topic_partition),
                            "error": error.message,
                        },
                    )
                continue
            if written is not None:
                markers.wait_for(written)
        markers.all_begun()


class _Markers:
    """The markers of one transaction, until all of them are in their logs."""

    __slots__ = ("_finished", "_good", "_waiting")

    def __init__(self, finished: Callable[[bool], object]) -> None:
        self._finished = finished
        self._good = True
        self._waiting = 1  # for all to have begun

    def failed(self) -> None:
        self._good = False

    def wait_for(self, written: Pending[ErrorCode]) -> None:
        self._waiting += 1
        written.then(self._one_done)

    def all_begun(self) -> None:
        self._one_done(ErrorCode.NONE)

    def _one_done(self, code: ErrorCode) -> None:
        self._good = self._good and code is ErrorCode.NONE
        self._waiting -= 1
        if not self._waiting:
            self._finished(self._good)
