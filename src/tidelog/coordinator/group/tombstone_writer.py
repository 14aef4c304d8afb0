"""Writes the tombstones of offsets and groups of one shard, many groups in one bounded batch.

Between two batches the loop serves others. What goes is therefore decided piece by piece, right
before it is written; a piece decided against an older state is never written. A group goes in the
batch after that of its last offset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.group import records
from tidelog.errors import KafkaError

if TYPE_CHECKING:
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


class TombstoneWriter:
    """Lives as long as one removal from one shard."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], shard: GroupShard) -> None:
        self._runtime = runtime
        self._shard = shard
        self._offsets: list[CoordinatorRecord] = []
        self._name_bytes = 0
        self._group_ids: list[str] = []

    def run(self, pieces: Iterator[Piece]) -> Iterator[None]:
        """Steps that write all pieces; it ends early if the log does not take one, or if the shard
        serves no more.
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
                return
            if is_last:
                return
            yield

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
            self._offsets.append(records.offset_tombstone(group_id, topic, partition))
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
