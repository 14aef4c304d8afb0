"""Which leader epoch wrote which offsets: the epochs of a log with their first offsets.

Entries grow in both fields. An epoch is assigned when a leader takes over and when a batch of a new
epoch is appended. The checkpoint file is written before the first batch of the epoch is in the log;
an epoch without batches is `ahead` of the file and may be lost with the process: nobody can ask for
its records. `dirty` says that the file holds what is no longer so.
The file is not synced here; a flush of the log does that.
See KIP-101 and KIP-279.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from tidelog.log.directory.checkpoints import encode_epochs, replace_file

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1

EpochEntry = tuple[int, int]


class LeaderEpochCache:
    __slots__ = ("ahead", "dirty", "entries")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries: list[EpochEntry] = list(entries)
        self.ahead = False
        self.dirty = False

    @property
    def latest_epoch(self) -> int:
        """-1 when there is none."""
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Entries that contradict the new one go; False when it says nothing new."""
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        if self.entries:
            latest_epoch, latest_start = self.entries[-1]
            if epoch == latest_epoch and start_offset >= latest_start:
                return False
        while self.entries and (
            self.entries[-1][0] >= epoch or self.entries[-1][1] >= start_offset
        ):
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self.ahead = True
        return True

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEntry:
        """The epoch at or below the requested one, and where the next epoch begins."""
        if requested_epoch == UNDEFINED_EPOCH or not self.entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if requested_epoch == self.latest_epoch:
            return requested_epoch, log_end_offset
        above = bisect_right(self.entries, requested_epoch, key=_epoch)
        if above == len(self.entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        floor_epoch = self.entries[above - 1][0] if above else requested_epoch
        return floor_epoch, self.entries[above][1]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the batch at `offset`, or -1."""
        above = bisect_right(self.entries, offset, key=_start_offset)
        return self.entries[above - 1][0] if above else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        while self.entries and self.entries[-1][1] >= end_offset:
            self.entries.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The epoch that covers `start_offset` now begins there."""
        above = bisect_right(self.entries, start_offset, key=_start_offset)
        if above and (above > 1 or self.entries[0][1] != start_offset):
            self.entries[:above] = [(self.entries[above - 1][0], start_offset)]
            self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self.entries)
        self.entries.clear()

    def save(self, path: str) -> None:
        replace_file(path, encode_epochs(self.entries), sync=False)
        self.ahead = self.dirty = False


def _epoch(entry: EpochEntry) -> int:
    return entry[0]


def _start_offset(entry: EpochEntry) -> int:
    return entry[1]
