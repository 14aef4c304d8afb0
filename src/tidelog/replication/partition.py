"""A partition as this broker hosts it: the log, who leads it, and the fetches that wait for it.

What readers may see is decided here (high watermark, last stable offset, leader epochs); the log
below knows only bytes and offsets. Touched only on the broker loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.partition_log import AppendInfo, PartitionLog
from tidelog.log.validator import AppendOrigin
from tidelog.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from tidelog.record.inflation import InflationBudget
from tidelog.replication.delayed_fetch import DelayedFetch
from tidelog.types import TopicPartition, Uuid

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
LATEST_PRODUCE_VERSION = 13


class Partition:
    __slots__ = (
        "_fetches",
        "_unseen_bytes",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: PartitionLog,
        *,
        leader_id: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch  # never decreases while the partition lives
        self.replicas = replicas
        self.isr = isr  # subset of replicas; holds the leader
        self._fetches: set[DelayedFetch] | None = None  # None while nobody waits
        self._unseen_bytes = 0  # appended, but still above the high watermark

    def append(
        self,
        records: memoryview,
        produce_version: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        inflation: InflationBudget | None = None,
    ) -> AppendInfo:
        """Append as leader. While a flush is due, readers do not see the records: `flush_due`."""
        log = self.log
        info = log.append_as_leader(
            records,
            self.leader_epoch,
            origin=origin,
            produce_version=produce_version,
            inflation=inflation,
        )
        self._unseen_bytes += info.size_bytes
        if log.unflushed_messages < log.config.flush_messages:
            self.advance_high_watermark()
        return info

    def append_as_coordinator(self, records: memoryview) -> AppendInfo:
        """Append what a coordinator of this broker writes."""
        return self.append(records, LATEST_PRODUCE_VERSION, AppendOrigin.COORDINATOR)

    def append_marker(self, marker: memoryview) -> None:
        """Append the end of a transaction; what it held may be more than its own bytes, so
        readers must look again.
        """
        self.append_as_coordinator(marker)
        self.wake_fetches()

    @property
    def flush_due(self) -> bool:
        """Whether flush.messages demands a flush before what was appended may be acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def advance_high_watermark(self, up_to_offset: int | None = None) -> None:
        """With no other replica, what this log holds is committed: let readers see it.

        After a flush `up_to_offset` is what was flushed. Waiting fetches are then told of all
        unseen bytes; one that is woken too early looks, and waits again.
        """
        log = self.log
        end_offset = log.log_end_offset
        offset = end_offset if up_to_offset is None else up_to_offset
        if log.high_watermark < offset:
            log.update_high_watermark(offset)
            if self._fetches is not None:
                for fetch in tuple(self._fetches):
                    fetch.appended(self._unseen_bytes)
            if offset == end_offset:
                self._unseen_bytes = 0

    def flushed(self) -> None:
        """A flush has ended well: what it put on disk may be seen."""
        self.advance_high_watermark(self.log.recovery_point)

    def require_leader_epoch(self, current_leader_epoch: int) -> None:
        """KIP-320: a client that knows of another leadership than ours must refresh its
        metadata.
        """
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        read_committed: bool = False,
        replica_id: int = CONSUMER_REPLICA_ID,
        current_leader_epoch: int = UNDEFINED_EPOCH,
        last_fetched_epoch: int = UNDEFINED_EPOCH,
    ) -> PartitionData:
        log = self.log
        if current_leader_epoch != self.leader_epoch:
            self.require_leader_epoch(current_leader_epoch)
        if replica_id >= 0:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {replica_id} is not assigned"
            )
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        answer = PartitionData(
            partition_index=self.topic_partition.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if last_fetched_epoch >= 0 and self._diverges(answer, offset, last_fetched_epoch):
            return answer
        if replica_id == DEBUGGING_REPLICA_ID:
            bound = log.log_end_offset
        else:
            bound = last_stable_offset if read_committed else high_watermark
        result = log.read(offset, max_bytes, up_to_offset=bound, min_one_batch=min_one_batch)
        if result.records is not None:
            answer.records = result.records
        if read_committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                for entry in log.aborted_transactions(offset, result)
            ]
        return answer

    def _diverges(self, answer: PartitionData, offset: int, last_fetched_epoch: int) -> bool:
        epoch, end_offset = self.log.epoch_end_offset(last_fetched_epoch)
        if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_OFFSET:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"no end offset is known for epoch {last_fetched_epoch}",
            )
        if offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < offset:
            answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return True
        return False

    def watch(self, fetch: DelayedFetch) -> None:
        if self._fetches is None:
            self._fetches = set()
        self._fetches.add(fetch)

    def unwatch(self, fetch: DelayedFetch) -> None:
        if self._fetches is not None:
            self._fetches.discard(fetch)
            if not self._fetches:
                self._fetches = None

    def wake_fetches(self) -> None:
        """Something other than an append changed (deletion, leadership): waiting fetches must
        look again.
        """
        for fetch in tuple(self._fetches or ()):
            fetch.wake_soon()
