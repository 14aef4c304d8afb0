"""The repair of a log directory: its damaged logs one by one, then its checkpoints.

The directory is locked meanwhile, as a broker locks it. A partition's folder that lies in no log
directory has neither lock nor checkpoints; if the folder around it has a lock, that one counts.

Checkpoints are written last: rows of repaired logs say where those end now, all other rows stay. A
checkpoint that cannot be read is written for all logs, as far as they tell.

Offsets that are lost for good inside of a log that was never compacted get a row in the cleaner's
checkpoint: from then on readers pass over the gap. That row is written before the gap is made. A
broker that starts on a repair cut short would otherwise take the gap for damage, and cut the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import StartupError
from tidelog.log.directory.checkpoints import (
    CHECKPOINT_FILES,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
    replace_file,
)
from tidelog.log.directory.log_directory import LOCK_FILE, LogDirectory
from tidelog.log.segment.index_file import fsync_path
from tidelog.log.segment.log_segment import LOG_SUFFIX
from tidelog.tools.repair.backup import Backup
from tidelog.tools.repair.partition_repair import (
    PartitionRepair,
    RepairedOffsets,
    carry_out,
    partition_of,
)
from tidelog.tools.repair.salvage_plan import SalvagePlan, SalvagePlanner
from tidelog.tools.verify.directory_check import DirectoryCheck, DirectorySummary
from tidelog.tools.verify.finding import Finding, Kind
from tidelog.tools.verify.partition_check import Expectations, PartitionCheck, PartitionSummary
from tidelog.tools.verify.target import Target
from tidelog.types import TopicPartition

OF_BATCHES = (Kind.LOG, Kind.EPOCHS, Kind.BATCH_EPOCH)
IN_FOLDER = (Kind.LOG, Kind.EPOCHS, Kind.BATCH_EPOCH, Kind.LEFTOVER)


class SalvageRefused(StartupError):
    pass


class RepairSummary(NamedTuple):
    before: DirectorySummary
    plans: list[SalvagePlan]  # of the logs that are damaged
    after: DirectorySummary | None = None  # None after a dry run, or where there was nothing to do
    backup: Path | None = None

    @property
    def found(self) -> list[Finding]:
        return [finding for finding in self.before.all_findings if finding.is_damage]

    @property
    def remaining(self) -> list[Finding]:
        last = self.after or self.before
        return [finding for finding in last.all_findings if finding.is_damage]


Announce = Callable[[RepairSummary], None]


class DirectoryRepair:
    """With `salvage` a damaged batch goes alone, else everything behind it goes too."""

    def __init__(
        self,
        target: Target,
        backup_folder: Path,
        *,
        jobs: int | None = None,
        salvage: bool = False,
    ) -> None:
        self._target = target
        self._salvage = salvage
        self._path = target.directory
        self._jobs = jobs
        self._backup = Backup(self._path, backup_folder)

    def plan(self) -> RepairSummary:
        before = self._check(mind_lock=True)
        return RepairSummary(before, self._plans(before))

    def run(self, announce: Announce = lambda summary: None) -> RepairSummary:
        """DirectoryLocked while a broker uses the directory. `announce` is told what is about to be
        done, before anything is."""
        if not (self._path / LOCK_FILE).exists():
            # Nobody uses it. The lock file would stay behind where there is nothing to repair.
            planned = self.plan()
            if not planned.found:
                return planned
        with self._lock():
            before = self._check()
            planned = RepairSummary(before, self._plans(before))
            if not planned.found:
                return planned
            announce(planned)
            self._repair(planned)
            return planned._replace(after=self._check(), backup=self._used_backup())

    def _plans(self, before: DirectorySummary) -> list[SalvagePlan]:
        plans = []
        for summary in before.partitions:
            if not any(finding.kind in OF_BATCHES for finding in summary.findings):
                continue
            planner = SalvagePlanner(summary.folder, self._expectations(before, summary))
            if not planner.is_interrupted:
                plans.append(planner.plan())
            elif self._salvage and any(_is_damaged_log(finding) for finding in summary.findings):
                raise SalvageRefused(
                    f"{summary.folder} is damaged and holds a cleaning that was interrupted: start "
                    "a broker on it, which finishes that, then salvage"
                )
        return plans

    def _expectations(self, before: DirectorySummary, summary: PartitionSummary) -> Expectations:
        key = partition_of(summary.folder)
        rows = {name: offsets.get(key) for name, offsets in before.checkpoints.items()}
        return Expectations(
            before.is_clean,
            rows.get(RECOVERY_POINT_FILE),
            rows.get(HIGH_WATERMARK_FILE),
            rows.get(LOG_START_FILE),
            rows.get(CLEANER_FILE),
            self._may_have_gaps(before, key),
        )

    def _may_have_gaps(self, before: DirectorySummary, key: TopicPartition) -> bool:
        cleaned = before.checkpoints.get(CLEANER_FILE)
        return cleaned is None or key in cleaned or self._target.is_alone

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

    def _repair(self, planned: RepairSummary) -> None:
        before = planned.before
        for finding in before.findings:
            if finding.kind == Kind.LEFTOVER:
                self._backup.take(Path(finding.path))
        if self._salvage:
            plans = [plan for plan in planned.plans if plan.has_changes]
            self._permit_gaps(before, plans)
            before = before._replace(partitions=list(self._salvaged(before, plans)))
        repaired = dict(self._repair_logs(before))
        if self._target.is_alone:
            return
        for name in CHECKPOINT_FILES:
            if self._target.only is not None and name not in before.checkpoints:
                continue  # to write it for one log would make it forget the others
            self._write_checkpoint(name, self._rows(name, before, repaired))
        fsync_path(str(self._path))

    def _permit_gaps(self, before: DirectorySummary, plans: list[SalvagePlan]) -> None:
        """While the checkpoint cannot be read, gaps are permitted everywhere."""
        cleaned = before.checkpoints.get(CLEANER_FILE)
        if self._target.is_alone or cleaned is None or not plans:
            return
        rows = {partition_of(plan.folder): plan.segments[0].base_offset for plan in plans}
        self._write_checkpoint(CLEANER_FILE, rows | cleaned)
        fsync_path(str(self._path))

    def _write_checkpoint(self, name: str, rows: dict[TopicPartition, int]) -> None:
        self._backup.keep(self._path / name)
        replace_file(str(self._path / name), encode_offsets(rows) if rows else b"0\n0\n")

    def _salvaged(
        self, before: DirectorySummary, plans: list[SalvagePlan]
    ) -> Iterator[PartitionSummary]:
        """Every log as it is once the plans are carried out."""
        by_folder = {plan.folder: plan for plan in plans}
        for summary in before.partitions:
            plan = by_folder.get(summary.folder)
            if plan is None:
                yield summary
                continue
            carry_out(plan, self._backup)
            expected = self._expectations(before, summary)
            after = PartitionCheck(
                summary.folder, expected._replace(is_clean=False, may_have_gaps=True)
            ).run()
            # Recovery goes over it even if nothing else is wrong: indexes and snapshots are old.
            mark = Finding(Kind.LOG, plan.folder, "it was salvaged", "")
            yield after._replace(findings=[*after.findings, mark])

    def _repair_logs(
        self, before: DirectorySummary
    ) -> Iterator[tuple[TopicPartition, RepairedOffsets]]:
        for summary in before.partitions:
            if any(finding.kind in IN_FOLDER for finding in summary.findings):
                key = partition_of(summary.folder)
                log_start_offset = before.checkpoints.get(LOG_START_FILE, {}).get(key, 0)
                if self._salvage:
                    # A first segment of which nothing was left is gone, and with it what its
                    # producers had open.
                    log_start_offset = max(log_start_offset, summary.first_offset)
                repair = PartitionRepair(
                    Path(summary.folder),
                    summary.findings,
                    self._backup,
                    log_start_offset=log_start_offset,
                    gaps_allowed=self._may_have_gaps(before, key)
                    or (self._salvage and summary.has_gaps),
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
            key = partition_of(summary.folder)
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


def _is_damaged_log(finding: Finding) -> bool:
    return finding.kind == Kind.LOG and finding.path.endswith(LOG_SUFFIX)


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
