"""How much of a log is on disk for good, and the flushes on their way there.

A FlushTicket is made on the broker loop, run in a thread, and handed back on the loop. `run` only
syncs files and touches no state. Open files are held by reference and the others by name, so that
a roll or a deletion meanwhile does no harm; a ticket overtaken by a truncation is void.

What is synced: the written part of every segment since the recovery point; the indexes of segments
that have become inactive since; epoch file, topic id, latest snapshot and folder if they changed.
Indexes of the active segment are synced only on a clean stop: otherwise recovery begins at that
segment and writes them anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tidelog.log.directory.checkpoints import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.segment.index_file import fsync_path
from tidelog.log.segment.log_file import LogFile
from tidelog.log.segment.log_segment import LogSegment

SYNC_THREADS: Final = 16


class FlushTicket:
    __slots__ = ("_files", "_paths", "began_s", "changes", "end_offset", "generation", "segments")

    def __init__(
        self,
        end_offset: int,
        generation: int,
        changes: int,
        segments: Sequence[LogSegment],
        files: Sequence[LogFile],
        paths: Sequence[str],
    ) -> None:
        self.end_offset = end_offset
        self.generation = generation
        self.changes = changes
        self.segments = segments  # inactive ones, whose indexes are synced with them
        self.began_s = -1.0  # on the clock of the log's environment; below 0 nobody counts it
        self._files = files
        self._paths = paths

    @property
    def is_empty(self) -> bool:
        return not self._files and not self._paths

    def run(self) -> None:
        """OSError when the disk refuses; everything then still counts as unsynced."""
        for file in self._files:
            os.fdatasync(file.fileno())
        for path in self._paths:
            fsync_path(path)


class SyncState:
    """Of one log; touched only on the broker loop."""

    __slots__ = ("_changes", "_generation", "_synced_changes", "last_flush_ms", "recovery_point")

    def __init__(self, recovery_point: int, now_ms: int) -> None:
        self.recovery_point = recovery_point  # all below it has been synced
        self.last_flush_ms = now_ms
        self._generation = 0  # grows with every truncation
        self._changes = 0  # grows with new files and epochs
        self._synced_changes = 0  # as `_changes` was when the last good flush began

    @property
    def truncations(self) -> int:
        return self._generation

    def files_changed(self) -> None:
        self._changes += 1

    def truncated(self, log_end_offset: int) -> None:
        self._generation += 1
        self.recovery_point = min(self.recovery_point, log_end_offset)

    def succeed(self, other: SyncState) -> SyncState:
        """Speak from now on for the log that `other` spoke for, whose tickets are void."""
        self._generation = other._generation + 1
        self.files_changed()
        return self

    def begin(
        self,
        directory: str,
        segments: Sequence[LogSegment],
        snapshots: SnapshotFiles,
        log_end_offset: int,
        also: Sequence[str] = (),
    ) -> FlushTicket:
        """`also`: further files to be synced."""
        files = [segments[-1].file] if log_end_offset > self.recovery_point else []
        inactive: list[LogSegment] = []
        for segment in reversed(segments[:-1]):
            if not segment.indexes_synced:
                inactive.append(segment)
                files.append(segment.file)
            elif segment.base_offset < self.recovery_point:
                break
        for file in files:
            file.fileno()  # open it while its name is still the one it has
        paths = [path for segment in inactive for path in segment.index_paths()]
        paths += [path for path in also if path not in paths]
        changed = self._changes > self._synced_changes
        if (inactive or changed) and snapshots.latest_offset >= 0:
            paths.append(snapshots.path(snapshots.latest_offset))
        if changed:
            paths += (
                f"{directory}/{LEADER_EPOCH_FILE}",
                f"{directory}/{PARTITION_METADATA_FILE}",
                directory,
                os.path.dirname(directory),
            )
        return FlushTicket(log_end_offset, self._generation, self._changes, inactive, files, paths)

    def done(self, ticket: FlushTicket, now_ms: int) -> None:
        """After a successful run."""
        if ticket.generation != self._generation:
            return
        for segment in ticket.segments:
            segment.indexes_synced = True
        self._synced_changes = max(self._synced_changes, ticket.changes)
        self.recovery_point = max(self.recovery_point, ticket.end_offset)
        self.last_flush_ms = now_ms


def run_all(tickets: Sequence[FlushTicket]) -> list[OSError | None]:
    """What went wrong with each. Syncs of several files at once cost little more than one."""
    if len(tickets) < 4:
        return [_run(ticket) for ticket in tickets]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=SYNC_THREADS) as pool:
        return list(pool.map(_run, tickets))


def _run(ticket: FlushTicket) -> OSError | None:
    try:
        ticket.run()
    except OSError as error:
        return error
    return None
