"""What has to be read before a log is cut, for a thread to read.

A cut drops a few bytes and renames a few files, but the log must know what its producers and its
largest timestamp were at the new end. A snapshot tells of the producers where the last segment
begins, the time index of timestamps up to its last entry; the batches from there to the cut tell
the rest. In a large segment that takes half a second, and when a broker comes back after another
has led, all its partitions may have to be cut.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment.segment_walk import LOOP_BYTES_MAX, Walk, WalkedFile

if TYPE_CHECKING:
    from tidelog.log.log_environment import LogEnvironment
    from tidelog.log.partition_log import PartitionLog


class TruncationWalk(Walk):
    """For a cut at `offset`, which lies in one of the segments.

    It holds as long as the log is not cut and its start does not move: what is appended meanwhile
    lies above the cut, and what a cleaner takes leaves producers and timestamps as they are.
    """

    def __init__(
        self,
        log: PartitionLog,
        offset: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        snapshots, log_start_offset = log.snapshots, min(log.log_start_offset, offset)
        kept = [segment for segment in log.segments if segment.base_offset <= offset]
        last = kept[-1]
        super().__init__(last.file.path)
        self._offset = offset
        self._truncations = log.truncations
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        older = [each for each in snapshots.offsets() if log_start_offset < each <= offset]
        self._snapshots = SnapshotFiles(snapshots.directory, older)
        self._known_from = max(self._snapshots.latest_offset, log_start_offset)
        self._time_entry, time_position = last.timestamps_known_below(offset)
        found = last.find_batch(offset)
        end = last.size if found is None else found.position
        # Files with the positions from which they are read; the last one is where the cut is.
        self._files = [(WalkedFile.of(last)._replace(size=end), time_position)]
        if self._known_from < offset:
            first = max(bisect_right([each.base_offset for each in kept], self._known_from) - 1, 0)
            self._files[:0] = [(WalkedFile.of(each), 0) for each in kept[first:-1] if each.size]
            position = last.indexed_position_of(self._known_from)
            self._files[-1] = (self._files[-1][0], min(position, time_position))
        self.producers = ProducerStateTable()
        self.max_timestamp = self._time_entry  # with its offset, once it `is_clean`

    @property
    def size_bytes(self) -> int:
        return sum(file.size - position for file, position in self._files)

    def is_for(self, log: PartitionLog, offset: int) -> bool:
        return (
            self._offset == offset
            and self._log_start_offset == min(log.log_start_offset, offset)
            and self._truncations == log.truncations
        )

    def _walk(self) -> bool:
        table = self.producers
        known = self._snapshots.load_latest(table, self._now_ms, self._expiration_ms)
        if max(known, self._log_start_offset) != self._known_from:
            return False  # a snapshot is damaged
        for file, position in self._files:
            scan = file.scan(verify_crc=False, position=position)
            for piece in scan:
                for row in piece.producers:
                    if self._known_from <= row.last_offset < self._offset:
                        table.replay(row)
            if scan.position != file.size:
                return False
        if scan.max_timestamp > self._time_entry[0]:
            self.max_timestamp = scan.max_timestamp, scan.offset_of_max_timestamp
        return True


def walk_due(
    log: PartitionLog, environment: LogEnvironment, offset: int, made: TruncationWalk | None
) -> TruncationWalk | None:
    """Before a cut at `offset`; None if little has to be read, or `made` holds."""
    if not log.segments[0].base_offset <= offset < log.log_end_offset:
        return None
    if made is not None and made.has_run and made.is_for(log, offset):
        return None
    walk = TruncationWalk(
        log, offset, environment.clock.time_ms(), environment.producer_expiration_ms
    )
    return walk if walk.size_bytes > LOOP_BYTES_MAX else None
