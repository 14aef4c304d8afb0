"""The repair of a log directory: its damaged logs one by one, then its checkpoints.

The directory is locked meanwhile, as a broker locks it. A partition's folder that lies in no log
directory has neither lock nor checkpoints; if the folder around it has a lock, that one counts.
Checkpoints are written last: rows of
repaired logs say where those end now, all other rows stay. A checkpoint that cannot be read is
written for all logs, as far as they tell. Offsets that are lost for good inside of a log that was
never compacted get a row in the cleaner's checkpoint: from then on readers pass over the gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tidelog.log.checkpoints import (
    CHECKPOINT_FILES,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
    replace_file,
)
from tidelog.log.index_file import fsync_path
from tidelog.log.log_directory import LOCK_FILE, LogDirectory
from tidelog.tools.repair.backup import Backup
from tidelog.tools.repair.partition_repair import PartitionRepair, RepairedOffsets
from tidelog.tools.verify.directory_check import DirectoryCheck, DirectorySummary
from tidelog.tools.verify.finding import Finding, Kind
from tidelog.tools.verify.partition_check import PartitionSummary
from tidelog.tools.verify.target import Target
from tidelog.types import TopicPartition

IN_FOLDER = (Kind.LOG, Kind.EPOCHS, Kind.BATCH_EPOCH, Kind.LEFTOVER)


class RepairSummary(NamedTuple):
    before: DirectorySummary
    after: DirectorySummary | None  # None after a dry run, or where there was nothing to do
    backup: Path | None

    @property
    def found(self) -> list[Finding]:
        return [finding for finding in self.before.all_findings if finding.is_damage]

    @property
    def remaining(self) -> list[Finding]:
        last = self.after or self.before
        return [finding for finding in last.all_findings if finding.is_damage]


class DirectoryRepair:
    def __init__(self, target: Target, backup_folder: Path, *, jobs: int | None = None) -> None:
        self._target = target
        self._path = target.directory
        self._jobs = jobs
        self._backup = Backup(self._path, backup_folder)

    def plan(self) -> RepairSummary:
        return RepairSummary(self._check(mind_lock=True), None, None)

    def run(self) -> RepairSummary:
        """DirectoryLocked while a broker uses the directory."""
        with self._lock():
            before = self._check()
            if not any(finding.is_damage for finding in before.all_findings):
                return RepairSummary(before, None, None)
            self._repair(before)
            after = self._check()
            return RepairSummary(before, after, self._used_backup())

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Where no broker has ever been, a lock would only stay behind."""
        directory = LogDirectory(self._path)
        if not self._target.is_alone or (self._path / LOCK_FILE).exists():
            directory.lock()
        try:
            yield
        finally:
            directory.unlock()

    def _check(self, *, mind_lock: bool = False) -> DirectorySummary:
        return DirectoryCheck(self._target, jobs=self._jobs, mind_lock=mind_lock).run()

    def _used_backup(self) -> Path | None:
        return self._backup.folder if self._backup.is_used else None

    def _repair(self, before: DirectorySummary) -> None:
        for finding in before.findings:
            if finding.kind == Kind.LEFTOVER:
                self._backup.take(Path(finding.path))
        repaired = dict(self._repair_logs(before))
        if self._target.is_alone:
            return
        for name in CHECKPOINT_FILES:
            if self._target.only is not None and name not in before.checkpoints:
                continue  # to write it for one log would make it forget the others
            self._backup.keep(self._path / name)
            rows = self._rows(name, before, repaired)
            replace_file(str(self._path / name), encode_offsets(rows) if rows else b"0\n0\n")
        fsync_path(str(self._path))

    def _repair_logs(
        self, before: DirectorySummary
    ) -> Iterator[tuple[TopicPartition, RepairedOffsets]]:
        cleaned = before.checkpoints.get(CLEANER_FILE)
        for summary in before.partitions:
            if any(finding.kind in IN_FOLDER for finding in summary.findings):
                key = key_of(summary)
                repair = PartitionRepair(
                    Path(summary.folder),
                    summary.findings,
                    self._backup,
                    log_start_offset=before.checkpoints.get(LOG_START_FILE, {}).get(key, 0),
                    gaps_allowed=cleaned is None or key in cleaned or self._target.is_alone,
                )
                yield key, repair.run()

    def _rows(
        self,
        name: str,
        before: DirectorySummary,
        repaired: dict[TopicPartition, RepairedOffsets],
    ) -> dict[TopicPartition, int]:
        old = before.checkpoints.get(name)
        rows = dict(old or {})
        for summary in before.partitions:
            key = key_of(summary)
            offsets = repaired.get(key) or RepairedOffsets(
                summary.first_offset,
                max(before.checkpoints.get(LOG_START_FILE, {}).get(key, 0), summary.first_offset),
                summary.end_offset,
            )
            is_wrong = key in repaired or old is None or _is_blamed(summary, name)
            if is_wrong or (name == CLEANER_FILE and summary.has_gaps):
                row = _row(name, rows.get(key), offsets, has_gaps=summary.has_gaps)
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        return rows


def _is_blamed(summary: PartitionSummary, name: str) -> bool:
    return any(
        finding.kind == Kind.CHECKPOINT and finding.path.endswith(f"/{name}")
        for finding in summary.findings
    )


def _row(name: str, old: int | None, offsets: RepairedOffsets, *, has_gaps: bool) -> int | None:
    """None for no row."""
    if name == RECOVERY_POINT_FILE:
        return offsets.end_offset
    if name == HIGH_WATERMARK_FILE:
        return offsets.end_offset if old is None else min(old, offsets.end_offset)
    if name == LOG_START_FILE:
        start = offsets.log_start_offset
        return start if offsets.first_offset < start <= offsets.end_offset else None
    assert name == CLEANER_FILE, name
    if old is not None:
        return min(old, offsets.end_offset)
    return offsets.first_offset if has_gaps else None


def key_of(summary: PartitionSummary) -> TopicPartition:
    topic, _, partition = Path(summary.folder).name.rpartition("-")
    return TopicPartition(topic, int(partition))
