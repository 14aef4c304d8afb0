"""One partition on its way from its leader into this broker's log.

A follower asks for its log end and says of which epoch its last batch is. Where the leader's
history parts from that, it answers with the epoch and offset at which it does; the follower cuts
its log there and asks again (KIP-595, after KIP-101 and KIP-279). So epochs say where a log is cut.
The high watermark says it only if the log has no epochs, or if the leader knows none of them. Where
much has to be read before a cut, `WalkDue` is raised: the cut is to be asked for again once a
thread has made the walk.

The high watermark comes with every answer. It follows the leader's as far as this log reaches.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from tidelog.log.leader_epoch_cache import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from tidelog.log.segment.segment_walk import WalkDue
from tidelog.log.truncation_walk import TruncationWalk
from tidelog.protocol.messages.fetch import EpochEndOffset, PartitionData
from tidelog.record.batch import holds_whole_batch
from tidelog.replication.partition import Partition

logger = logging.getLogger(__name__)


class Position(NamedTuple):
    """What the leader is told; it is told again only when it has changed."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int


class FollowedPartition:
    """Touched only by its fetcher."""

    __slots__ = (
        "_is_prepared",
        "_walk",
        "failures",
        "is_behind",
        "is_paused",
        "leader_epoch",
        "leader_high_watermark",
        "partition",
        "told",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.told: Position | None = None  # what the fetch session holds
        self.is_paused = False  # after an error, or while it is held back
        self.is_behind = True  # what the leader has committed is not all here yet
        self.leader_high_watermark = 0  # as its last answer had it
        self.failures = 0  # one after another
        self._is_prepared = False
        self._walk: TruncationWalk | None = None  # for the next cut, due or made

    def prepare(self) -> None:
        """Before the leader is first told where the log ends. KafkaError passes."""
        log = self.partition.log
        if self._is_prepared:
            return
        if log.latest_epoch == UNDEFINED_EPOCH and log.log_end_offset > log.high_watermark:
            self._truncate_to(log.high_watermark, "it has no epochs")
        self._is_prepared = True

    @property
    def lag(self) -> int:
        """Records that the leader has committed and this log lacks."""
        return max(self.leader_high_watermark - self.partition.log.log_end_offset, 0)

    def position(self) -> Position:
        log = self.partition.log
        return Position(
            log.log_end_offset, log.log_start_offset, self.leader_epoch, log.latest_epoch
        )

    def append(self, row: PartitionData) -> int:
        """What the leader answered; the bytes by which the log grew. KafkaError passes."""
        partition, records = self.partition, row.records
        size_bytes = 0
        if records and holds_whole_batch(records):
            size_bytes = partition.append_from_leader(records, row.log_start_offset).size_bytes
        partition.follow(row.high_watermark, row.log_start_offset, size_bytes)
        self.leader_high_watermark = row.high_watermark
        self.is_behind = row.high_watermark > partition.log.log_end_offset
        return size_bytes

    def truncate(self, divergence: EpochEndOffset) -> None:
        """Cut the log where the leader's parts from it; a further cut may be needed."""
        log = self.partition.log
        if divergence.end_offset == UNDEFINED_OFFSET:
            self._truncate_to(log.high_watermark, "the leader knows none of its epochs")
            return
        offset = min(divergence.end_offset, log.log_end_offset)
        if divergence.epoch != UNDEFINED_EPOCH:
            _, end_offset = log.epoch_end_offset(divergence.epoch)
            if end_offset != UNDEFINED_OFFSET:
                offset = min(offset, end_offset)
        self._truncate_to(offset, f"the leader's epoch {divergence.epoch} ends there")

    def truncate_to_leader_end(self, leader_end_offset: int) -> None:
        """The leader's log is shorter: it was elected without being in sync."""
        self._truncate_to(leader_end_offset, "the leader's log ends there")

    def start_over_at(self, leader_start_offset: int) -> None:
        """The leader has deleted more than this log holds."""
        log = self.partition.log
        logger.warning(
            "log begins anew where the leader's does",
            extra={
                "partition": str(log.topic_partition),
                "log_end_offset": log.log_end_offset,
                "leader_log_start_offset": leader_start_offset,
            },
        )
        log.truncate_fully_and_start_at(leader_start_offset)

    def _truncate_to(self, offset: int, why: str) -> None:
        log = self.partition.log
        due = log.walk_before_truncation(offset, self._walk)
        if due is not None:
            self._walk = due
            raise WalkDue(due)
        walk, self._walk = self._walk, None
        level = logging.WARNING if offset < log.high_watermark else logging.INFO
        logger.log(
            level,
            "truncating",
            extra={
                "event": "log-truncated",
                "partition": str(log.topic_partition),
                "offset": offset,
                "log_end_offset": log.log_end_offset,
                "high_watermark": log.high_watermark,
                "why": why,
            },
        )
        log.truncate_to(offset, walk)
