"""Removing committed offsets and the groups that are left without any: which ones, and how.

By age (Kafka's cleanupExpiredOffsets): an offset that named its own expiry (OffsetCommit v2-v4)
expires then. The others expire offsets.retention.minutes after a time that the kind of group sets
(`Group.offset_expiry`):

    in a group without members          when it lost its last member
    in a group that never had members   the commit
    in a consumer group (KIP-848), and in a STABLE classic one of consumers
                                        the commit, only for topics that nobody subscribes to
    in any other group                  never

An offset that an open transaction is about to replace does not expire. With a topic, all its
offsets go, also those that wait in a transaction.

A group goes once it has neither members nor offsets; if it has a record, it gets a tombstone.

Tombstones of many groups share one bounded batch, and the loop serves others between two batches.
So each piece is decided right before it is written, never against an older state. A group goes in
the batch after that of its last offset.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.group.offsets import (
    NO_EXPIRY,
    CommittedOffset,
    GroupOffsets,
    offset_tombstone,
)
from tidelog.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.group.group import Group, TopicAndPartition
    from tidelog.coordinator.group.shard import GroupShard
    from tidelog.coordinator.runtime import CoordinatorRuntime
    from tidelog.coordinator.stored_record import CoordinatorRecord

logger = logging.getLogger(__name__)

# About a millisecond of writing and replaying, or of looking for what goes.
TOMBSTONES_MAX: Final = 50
NAMES_BYTES_MAX: Final = 64 * 1024  # group ids may be long; no batch is to be too large for the log
LOOKS_MAX: Final = 500

# Group, topic and those partitions whose offsets go (maybe none); without a topic: all pieces of
# the group have been looked at, and it may go too.
Piece = tuple[str, str | None, Sequence[int]]


def expired(
    group: Group,
    topic: str,
    partitions: Mapping[int, CommittedOffset],
    now_ms: int,
    retention_ms: int,
) -> list[int]:
    """Which of these partitions of a topic."""
    expiry = group.offset_expiry()
    if expiry is None or topic in expiry.subscribed_topics:
        return []
    idle_since_ms = expiry.idle_since_ms
    gone = []
    for partition, committed in partitions.items():
        if committed.expire_timestamp_ms != NO_EXPIRY:
            is_expired = now_ms >= committed.expire_timestamp_ms
        else:
            since_ms = committed.commit_timestamp_ms if idle_since_ms is None else idle_since_ms
            is_expired = now_ms - since_ms >= retention_ms
        if is_expired:
            gone.append(partition)
    return gone


def everything(offsets: GroupOffsets) -> Iterator[TopicAndPartition]:
    """What waits for a transaction too; some may come twice."""
    for topic, partition, _ in offsets:
        yield topic, partition
    yield from offsets.unstable_partitions()


def pieces_of_topic(
    shard: GroupShard, group_ids: Sequence[str], topic: str, end_offset: int
) -> Iterator[Piece]:
    """What was committed from `end_offset` on belongs to a newer topic of that name, and stays."""
    for group_id in group_ids:
        offsets = shard.offsets.get(group_id)
        has_topic = False
        for piece in () if offsets is None else offsets.pieces(topic):
            has_topic = True
            gone = [n for n, committed in piece.items() if committed.log_offset < end_offset]
            yield group_id, topic, gone
        if has_topic:
            yield group_id, None, ()


def expired_pieces(shard: GroupShard, now_ms: int, retention_ms: int) -> Iterator[Piece]:
    for group_id in tuple(shard.groups):
        offsets = shard.offsets.get(group_id)
        if offsets is not None:
            for topic in tuple(offsets.topics()):
                for piece in offsets.pieces(topic):
                    group = shard.groups.get(group_id)
                    if group is not None:  # it may change between two pieces, and go
                        gone = expired(group, topic, piece, now_ms, retention_ms)
                        # A tombstone would take along what waits for a transaction.
                        gone = [n for n in gone if not offsets.is_unstable(topic, n)]
                        yield group_id, topic, gone
        yield group_id, None, ()


class TombstoneWriter:
    """Lives as long as one removal from one shard."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], shard: GroupShard) -> None:
        self._runtime = runtime
        self._shard = shard
        self._offsets: list[CoordinatorRecord] = []
        self._name_bytes = 0
        self._group_ids: list[str] = []

    def run(self, pieces: Iterator[Piece]) -> Generator[None, None, bool]:
        """Steps that write all pieces; it ends early, and returns False, if the log does not take
        one, or if the shard serves no more.
        """
        while self._runtime.is_serving(self._shard.index, self._shard):
            is_last = self._collect(pieces)
            try:
                self.write()
            except KafkaError as error:
                logger.error(
                    "cannot remove offsets; they stay until the next try",
                    extra={"partition": self._shard.index, "error": error.message},
                )
                return False
            if is_last:
                return True
            yield
        return False

    def _collect(self, pieces: Iterator[Piece]) -> bool:
        """As much as one batch and one slice may have; whether that was all."""
        for looks, piece in enumerate(pieces, 1):
            self.add(piece)
            if (
                looks >= LOOKS_MAX
                or len(self._offsets) >= TOMBSTONES_MAX
                or self._name_bytes >= NAMES_BYTES_MAX
            ):
                return False
        return True

    def add(self, piece: Piece) -> None:
        group_id, topic, partitions = piece
        if topic is None:
            self._group_ids.append(group_id)
            return
        for partition in partitions:
            self._offsets.append(offset_tombstone(group_id, topic, partition))
            self._name_bytes += len(group_id) + len(topic)

    def write(self) -> None:
        """KafkaError: what is left undone stays as it was."""
        offsets, self._offsets = self._offsets, []
        group_ids, self._group_ids = self._group_ids, []
        self._name_bytes = 0
        self._runtime.write(self._shard.index, offsets)
        self._runtime.write(self._shard.index, self._forget(group_ids))

    def _forget(self, group_ids: Iterable[str]) -> list[CoordinatorRecord]:
        """The tombstones of those that have nothing left; those without a record go at once."""
        shard = self._shard
        made: list[CoordinatorRecord] = []
        for group_id in group_ids:
            group = shard.groups.get(group_id)
            if group is None or group_id in shard.offsets or not group.may_go:
                continue
            tombstones = group.tombstones()
            if tombstones:
                made += tombstones
            else:
                shard.forget(group)
        return made
