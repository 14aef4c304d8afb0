"""A partition as this broker hosts it: the log, who leads it, and who waits for it.

What readers may see is decided here (high watermark, last stable offset, leader epochs); the log
below knows only bytes and offsets. Touched only on the broker loop.

This broker leads the partition, alone or with followers, or follows another leader:

    is_leader  leadership  high watermark
    yes        None        the log end: there is no other replica
    yes        Leadership  what all in-sync replicas hold (`leadership`)
    no         None        what the leader said, as far as the log goes
    no         Leadership  as it was; suspended, for another is known to lead

Where flush.messages is due, the leader's own log counts only as far as it has been flushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple, Protocol

from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.leader_epoch_cache import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from tidelog.log.log_validator import AppendOrigin, ValidBatch
from tidelog.log.partition_log import LogAppendInfo, PartitionLog
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record.file_records import FileRecords
from tidelog.record.inflation import InflationBudget
from tidelog.replication.append_turn import QueuedAppend
from tidelog.replication.delayed_answer import Settle
from tidelog.replication.delayed_fetch import DelayedFetch
from tidelog.replication.leadership import Leadership
from tidelog.replication.partition_host import PartitionHost
from tidelog.replication.traffic import Traffic
from tidelog.supervisor import attempt, tell_each
from tidelog.types import TopicPartition, Uuid

CONSUMER_REPLICA_ID: Final = -1
DEBUGGING_REPLICA_ID: Final = -2
DELETE_TO_HIGH_WATERMARK: Final = -1
LATEST_PRODUCE_VERSION: Final = 13

Waiting = tuple[int, int, Settle]  # from which offset on; in the order they came
_numbers: Final = count()


class PartitionRegistration(NamedTuple):
    """What the controller says of a partition."""

    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    partition_epoch: int  # version of the state node
    is_new: bool = False  # no replica can have a log of it yet


class FollowerPosition(Protocol):
    """What a follower says of its log when it fetches."""

    fetch_offset: int
    log_start_offset: int


class EpochEndOffset(NamedTuple):
    """Where an epoch of the leader ended."""

    epoch: int
    end_offset: int


class LogReadInfo:
    """What a read found, and where the log stood then. `records` are empty where the reader is told
    that its log parts from this one (`diverging_epoch`).
    """

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "records",
    )

    def __init__(
        self,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: FileRecords | bytes = b"",
        diverging_epoch: EpochEndOffset | None = None,
        aborted_transactions: Sequence[AbortedTxn] | None = None,  # of read_committed
    ) -> None:
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.diverging_epoch = diverging_epoch
        self.aborted_transactions = aborted_transactions


class Partition:
    __slots__ = (
        "_commits",
        "_fetches",
        "_low_watermarks",
        "_queue",
        "_unseen_bytes",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "partition_epoch",
        "replicas",
        "resigned_in",
        "topic_id",
        "topic_partition",
        "traffic",
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
        is_leader: bool = True,
        partition_epoch: int = -1,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch  # never decreases while the partition lives
        self.partition_epoch = partition_epoch  # of the state that the controller last committed
        self.replicas = replicas
        self.isr = isr  # subset of replicas; holds the leader
        self.is_leader = is_leader
        self.leadership: Leadership | None = None  # where this broker leads others
        self.resigned_in: int | None = None  # the broker epoch whose end ended its leadership
        self.traffic = Traffic()
        self._fetches: set[DelayedFetch] | None = None  # None while nobody waits
        self._queue: list[QueuedAppend] | None = None  # not appended yet; see `append_turn`
        self._unseen_bytes = 0  # appended, but still above the high watermark
        # Those who wait for the high watermark: (offset, number, callback), lowest offset first.
        self._commits: list[Waiting] | None = None
        # Those who wait for the log start of all replicas, likewise.
        self._low_watermarks: list[Waiting] | None = None

    # Leadership

    def make_leader(self, state: PartitionRegistration, host: PartitionHost) -> bool:
        """This broker leads, as before or from now on. Returns whether it did not lead before."""
        if state.partition_epoch < self.partition_epoch:
            return False  # an answer to AlterPartition has told us more
        self.append_queued()
        is_new, is_new_epoch = not self.is_leader, state.leader_epoch > self.leader_epoch
        if state.leader_epoch > self.leader_epoch + 1 and self.leadership is not None:
            # Others may have led in between without our hearing of it, and followers may have
            # truncated: what is known of them is worth nothing.
            self.leadership.wake_follower_fetches()
            self.leadership = None
        self._note_registration(state)
        self.is_leader = True
        if len(state.replicas) == 1:
            self.leadership = None
            self.log.enter_leader_epoch(self.leader_epoch)
        else:
            is_first = self.leadership is None
            leadership = self.leadership = self.leadership or Leadership(host, self.log)
            if is_new_epoch or is_first:
                self.log.enter_leader_epoch(self.leader_epoch)
                leadership.enter_epoch(state.replicas, state.isr, is_new=is_first)
            else:
                leadership.assign(state.replicas)
                leadership.commit_isr(state.isr)
        self.others_changed()
        self._give_up_if_under_min_isr()
        return is_new

    def make_follower(self, state: PartitionRegistration) -> bool:
        """Another broker leads, or none. Returns whether fetching has to begin anew, because the
        leader or its epoch is another one.
        """
        is_new = self.is_leader or state.leader != self.leader_id
        is_new = is_new or state.leader_epoch != self.leader_epoch
        self.append_queued()
        self._note_registration(state)
        self.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return is_new

    def _note_registration(self, state: PartitionRegistration) -> None:
        self.leader_id, self.leader_epoch = state.leader, state.leader_epoch
        self.replicas, self.isr = state.replicas, state.isr
        self.partition_epoch = state.partition_epoch
        self.resigned_in = None

    def resign(self, broker_epoch: int) -> None:
        """This broker's session is over. In its next one it may lead again, even in the same leader
        epoch if the controller never saw it go.
        """
        self.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.resigned_in = broker_epoch

    def retire(self, code: ErrorCode) -> None:
        """This broker no longer leads the partition. Everything that waits fails with `code`."""
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._refuse_queued(code)
        else:
            self.append_queued()
        self.is_leader = False
        leadership, self.leadership = self.leadership, None
        if leadership is not None:
            leadership.wake_follower_fetches()
        self.fail_waiting(code)

    def suspend(self) -> None:
        """The controller no longer counts this broker in, so another may lead. Serve nobody until
        an order says who leads, or until `resume`.
        """
        if self.leadership is not None and self.is_leader:
            self.append_queued()
            self.is_leader = False
            self.leadership.wake_follower_fetches()
            self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def resume(self) -> None:
        if self.leadership is not None:
            self.is_leader = True

    def fail_waiting(self, code: ErrorCode) -> None:
        waiting = (self._commits or []) + (self._low_watermarks or [])
        self._commits = self._low_watermarks = None
        self._tell_waiting([settle for _, _, settle in waiting], code)
        self.wake_fetches()

    def isr_altered(self, isr: Sequence[int], leader_epoch: int, partition_epoch: int) -> None:
        """The controller has committed this ISR."""
        if (
            self.leadership is None
            or leader_epoch != self.leader_epoch
            or partition_epoch < self.partition_epoch
        ):
            return
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.leadership.commit_isr(isr)
        self.advance_high_watermark()
        self._give_up_if_under_min_isr()

    def others_changed(self) -> None:
        """Stop waiting for dead followers now, because no fetch may come to trigger it."""
        self.advance_high_watermark()
        if self._low_watermarks is not None:
            self._settle_low_watermarks()

    def _give_up_if_under_min_isr(self) -> None:
        """With too few in sync the high watermark stands still: refuse those that wait for it."""
        if self._commits is None or self.leadership is None:
            return
        if self.leadership.is_under_min_isr:
            waiting, self._commits = self._commits, None
            self._tell_waiting(
                [settle for _, _, settle in waiting], ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )

    # Appending

    def append(
        self,
        records: memoryview,
        produce_version: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        inflation: InflationBudget | None = None,
        checked: ValidBatch | None = None,
    ) -> LogAppendInfo:
        """Append as leader. Readers see the records after a flush if `must_flush_before_ack`."""
        if self._queue is not None:
            self.append_queued()
        log = self.log
        end_offset_before = log.log_end_offset
        info = log.append_as_leader(
            records,
            self.leader_epoch,
            origin=origin,
            produce_version=produce_version,
            inflation=inflation,
            checked=checked,
        )
        self.traffic.appends += 1
        self._appended(end_offset_before, info.size_bytes)
        return info

    def _appended(self, end_offset_before: int, size_bytes: int) -> None:
        """The log has grown by so much; or by nothing, where all were duplicates."""
        log = self.log
        self._unseen_bytes += size_bytes
        self.traffic.bytes_in += size_bytes
        self.traffic.messages_in += log.log_end_offset - end_offset_before
        leadership = self.leadership
        if leadership is not None:
            if size_bytes:
                leadership.appended(end_offset_before, size_bytes)
            if len(leadership.maximal_isr) > 1:
                return  # followers must have it first
        if log.unflushed_messages < log.config.flush_messages:
            self.advance_high_watermark(log.log_end_offset)

    def append_soon(self, append: QueuedAppend) -> bool:
        """Queue it; whether it is the first that waits. `AppendTurn` ends the waiting."""
        if self._queue is None:
            self._queue = [append]
            return True
        self._queue.append(append)
        return False

    def append_queued(self) -> None:
        """Append what waits, and tell each its outcome."""
        queue, self._queue = self._queue, None
        if queue is not None:
            attempt(f"appending to {self.topic_partition}", partial(self._append_all, queue))
            _settle_appends(queue)

    def _append_all(self, appends: Sequence[QueuedAppend]) -> None:
        log = self.log
        end_offset_before = log.log_end_offset
        log.append_all_as_leader(appends, self.leader_epoch)
        self.traffic.appends += len(appends)
        size_bytes = 0
        for append in appends:
            if isinstance(append.outcome, LogAppendInfo):
                size_bytes += append.outcome.size_bytes
        self._appended(end_offset_before, size_bytes)

    def _refuse_queued(self, code: ErrorCode) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            for append in queue:
                append.outcome = KafkaError(code)
            _settle_appends(queue)

    def require_enough_in_sync(self) -> None:
        """Call before an append with acks=all; KafkaError if too few replicas are in sync."""
        if self.leadership is not None and not self.leadership.has_enough_in_sync:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.leadership.isr)} replicas of {self.topic_partition} are in sync, "
                f"{self.leadership.min_insync_replicas} are needed.",
            )

    def append_as_coordinator(self, records: memoryview) -> LogAppendInfo:
        """Append what a coordinator of this broker writes."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.require_enough_in_sync()
        return self.append(records, LATEST_PRODUCE_VERSION, AppendOrigin.COORDINATOR)

    def append_marker(self, marker: memoryview) -> LogAppendInfo:
        """Append the end of a transaction. It can free more bytes for readers than it adds, so wake
        them whatever they wait for.
        """
        info = self.append_as_coordinator(marker)
        self.wake_fetches()
        return info

    @property
    def must_flush_before_ack(self) -> bool:
        """Whether flush.messages demands a flush before what was appended may be acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def advance_high_watermark(self, up_to_offset: int | None = None) -> None:
        """Let readers see what is committed, as far as it has come.

        `up_to_offset` is how far this replica counts: to the log end, or where a flush is due to
        what has been flushed. Waiting fetches are told of all unseen bytes; one that is woken too
        early looks, and waits again.
        """
        log = self.log
        end_offset = log.log_end_offset
        if up_to_offset is not None:
            offset = up_to_offset
        else:
            offset = log.recovery_point if self.must_flush_before_ack else end_offset
        if self.leadership is not None:
            offset = self.leadership.committed_end(offset)
        if log.high_watermark < offset:
            log.update_high_watermark(offset)
            if self._fetches is not None:
                for fetch in tuple(self._fetches):
                    fetch.bytes_became_visible(self._unseen_bytes)
            if offset == end_offset:
                self._unseen_bytes = 0
            if self.leadership is not None:
                self.leadership.high_watermark_moved()
            if self._commits is not None:
                self._settle_commits(offset)

    def flushed(self) -> None:
        """A flush has succeeded, so readers may see what it put on disk."""
        if self.is_leader:
            self.advance_high_watermark(self.log.recovery_point)

    # Waiting for replicas

    def when_committed(self, offset: int, settle: Settle) -> None:
        """Called once everything below `offset` is committed, or cannot be by this leader."""
        if self.log.high_watermark >= offset:
            settle(self._commit_outcome())
            return
        if self._commits is None:
            self._commits = []
        heappush(self._commits, (offset, next(_numbers), settle))

    def _settle_commits(self, high_watermark: int) -> None:
        commits = self._commits
        assert commits is not None
        settled = _reached(commits, high_watermark)
        if not commits:
            self._commits = None
        if settled:
            self._tell_waiting(settled, self._commit_outcome())

    def _tell_waiting(self, waiting: Sequence[Settle], code: ErrorCode) -> None:
        """Each belongs to another request, so a failure of one must reach neither the others nor
        the request that brought the outcome.
        """
        tell_each(f"telling who waits for {self.topic_partition}", waiting, code)

    def _commit_outcome(self) -> ErrorCode:
        if self.leadership is not None and self.leadership.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def low_watermark(self) -> int:
        leadership = self.leadership
        return self.log.log_start_offset if leadership is None else leadership.low_watermark()

    def delete_records(self, offset: int) -> int:
        """Move the log start forward to `offset`, or to the high watermark; which offset it was.

        Followers hear of it at once. Call `when_low_watermark` to learn when all have followed.
        """
        log = self.log
        if not log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if offset == DELETE_TO_HIGH_WATERMARK:
            offset = log.high_watermark
        if not 0 <= offset <= log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if log.maybe_increment_log_start_offset(offset) and self.leadership is not None:
            self.leadership.wake_follower_fetches()
        return offset

    def when_low_watermark(self, offset: int, settle: Settle) -> None:
        """Called once no replica that lives has records below `offset`."""
        if self.low_watermark() >= offset:
            settle(ErrorCode.NONE)
            return
        if self._low_watermarks is None:
            self._low_watermarks = []
        heappush(self._low_watermarks, (offset, next(_numbers), settle))

    def _settle_low_watermarks(self) -> None:
        waiting = self._low_watermarks
        assert waiting is not None
        settled = _reached(waiting, self.low_watermark())
        if not waiting:
            self._low_watermarks = None
        if settled:
            self._tell_waiting(settled, ErrorCode.NONE)

    # Followers, where this broker leads

    def note_follower_fetch(self, replica_id: int, wanted: FollowerPosition, now_ms: int) -> None:
        """Note how far a follower has come: it holds everything below what it asks for."""
        leadership = self.leadership
        remote = None if leadership is None else leadership.remotes.get(replica_id)
        if leadership is None or remote is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {replica_id} is not assigned"
            )
        log, offset = self.log, wanted.fetch_offset
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        offset_before = remote.log_end_offset
        remote.note_fetch(offset, wanted.log_start_offset, now_ms, log.log_end_offset)
        if self._low_watermarks is not None:
            self._settle_low_watermarks()
        if offset != offset_before:
            self.advance_high_watermark()

    def divergence(self, offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        """Where a reader's log parts from this one, if its last batch is of another history."""
        epoch, end_offset = self.log.epoch_end_offset(last_fetched_epoch)
        if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_OFFSET:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"no end offset is known for epoch {last_fetched_epoch}",
            )
        if offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < offset:
            return EpochEndOffset(epoch, end_offset)
        return None

    def read_for_follower(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> LogReadInfo:
        """Whole batches, up to the log end."""
        log = self.log
        info = LogReadInfo(log.high_watermark, UNDEFINED_OFFSET, log.log_start_offset)
        records = log.read(
            offset, max_bytes, up_to_offset=log.log_end_offset, min_one_batch=min_one_batch
        ).records
        if records is not None and not records.is_piece:
            info.records = records
        return info

    def tell_divergence(self, divergence: EpochEndOffset) -> LogReadInfo:
        """An answer without records that tells a follower where to truncate."""
        log = self.log
        return LogReadInfo(
            log.high_watermark,
            UNDEFINED_OFFSET,
            log.log_start_offset,
            diverging_epoch=divergence,
        )

    # Following, where another broker leads

    def append_from_leader(
        self, batches: memoryview, leader_log_start_offset: int
    ) -> LogAppendInfo:
        info = self.log.append_as_follower(batches, leader_log_start_offset)
        self.traffic.bytes_replicated += info.size_bytes
        return info

    def follow(self, high_watermark: int, log_start_offset: int, size_bytes: int) -> None:
        """Take over the leader's offsets, once the records that came with them are appended."""
        log = self.log
        self._unseen_bytes += size_bytes
        offset = min(high_watermark, log.log_end_offset)
        if log.high_watermark < offset:
            log.update_high_watermark(offset)
            for fetch in tuple(self._fetches or ()):
                fetch.bytes_became_visible(self._unseen_bytes)
            self._unseen_bytes = 0
        if log_start_offset > log.log_start_offset and log_start_offset <= log.high_watermark:
            log.maybe_increment_log_start_offset(log_start_offset)

    # Reading

    def require_leader_epoch(self, current_leader_epoch: int) -> None:
        """KIP-320: a client that knows of another leadership than ours must refresh its
        metadata.
        """
        if current_leader_epoch in (UNDEFINED_EPOCH, self.leader_epoch):
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
    ) -> LogReadInfo:
        log = self.log
        self.traffic.reads += 1
        if current_leader_epoch != self.leader_epoch:
            self.require_leader_epoch(current_leader_epoch)
        if replica_id >= 0:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {replica_id} is not assigned"
            )
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        info = LogReadInfo(high_watermark, last_stable_offset, log.log_start_offset)
        if last_fetched_epoch >= 0:
            divergence = self.divergence(offset, last_fetched_epoch)
            if divergence is not None:
                info.diverging_epoch = divergence
                return info
        if replica_id == DEBUGGING_REPLICA_ID:
            bound = log.log_end_offset
        else:
            bound = last_stable_offset if read_committed else high_watermark
        result = log.read(offset, max_bytes, up_to_offset=bound, min_one_batch=min_one_batch)
        if result.records is not None:
            info.records = result.records
        if read_committed:
            info.aborted_transactions = log.aborted_transactions(offset, result)
        return info

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
        """Waiting fetches must look again: the leader changed, a transaction ended, or the
        partition is removed. A deletion of records wakes nobody, as in Kafka.
        """
        for fetch in tuple(self._fetches or ()):
            fetch.wake_soon()


def _settle_appends(appends: Sequence[QueuedAppend]) -> None:
    for append in appends:
        attempt("telling the outcome of an append", append.settle)


def _reached(waiting: list[Waiting], offset: int) -> list[Settle]:
    """Takes out those who wait for no more than the offset."""
    reached = []
    while waiting and waiting[0][0] <= offset:
        reached.append(heappop(waiting)[2])
    return reached
