"""The repair of one log: the broker's own recovery over all of it, after copies have been made.

What recovery leaves alone because a broker need not touch it, the epoch file and epochs of batches,
is put right first.

With --salvage, segments with damage are written anew without it, before recovery (`carry_out`). The
new files are written beside the old ones as `.cleaned` files; a broker takes those for work that
was not finished and removes them. They take their places once all are on the disk, and the indexes
of the old ones go before that: a broker that starts on a salvage cut short makes new ones. A
segment of which nothing is left goes, unless it is the last one: that one says where the log ends.
Everything that changes has been copied before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import pack
from typing import NamedTuple

from tidelog.clock import SystemClock
from tidelog.config.topic import LogConfig
from tidelog.log.directory.checkpoints import LEADER_EPOCH_FILE
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_loader import LogLoader
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment.index_file import fsync_path
from tidelog.log.segment.log_segment import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES
from tidelog.record.batch import LEADER_EPOCH_POSITION
from tidelog.tools.repair.backup import Backup
from tidelog.tools.repair.salvage_plan import PlannedSegment, SalvagePlan
from tidelog.tools.verify.finding import Finding, Kind
from tidelog.types import TopicPartition

NEVER_EXPIRE_MS = 1 << 62


def partition_of(folder: str | Path) -> TopicPartition:
    topic, _, partition = Path(folder).name.rpartition("-")
    return TopicPartition(topic, int(partition))


class RepairedOffsets(NamedTuple):
    first_offset: int
    log_start_offset: int
    end_offset: int


class PartitionRepair:
    def __init__(
        self,
        folder: Path,
        findings: Sequence[Finding],
        backup: Backup,
        *,
        log_start_offset: int,
        gaps_allowed: bool,
    ) -> None:
        self._folder = folder
        self._findings = findings
        self._backup = backup
        self._log_start_offset = log_start_offset
        self._gaps_allowed = gaps_allowed

    def run(self) -> RepairedOffsets:
        for finding in self._findings:
            self._repair_file(finding)
        self._keep_what_recovery_may_change()
        log = self._recover()
        for segment in log.segments:
            fsync_path(segment.file.path)
        return RepairedOffsets(
            log.segments[0].base_offset, log.log_start_offset, log.log_end_offset
        )

    def _repair_file(self, finding: Finding) -> None:
        path = Path(finding.path)
        if path.suffix == CLEANED_SUFFIX:
            return  # recovery must see it: it tells which .swap files do not count
        if finding.kind == Kind.LEFTOVER or (finding.kind == Kind.EPOCHS and path.exists()):
            self._backup.take(path)
        elif finding.kind == Kind.BATCH_EPOCH:
            assert finding.position is not None
            self._backup.keep(path)
            with path.open("r+b") as file:
                file.seek(finding.position + LEADER_EPOCH_POSITION)
                file.write(pack(">i", finding.epoch))

    def _keep_what_recovery_may_change(self) -> None:
        """All small files, and the segments from the first damaged one on."""
        logs = [finding.path for finding in self._findings if finding.path.endswith(LOG_SUFFIX)]
        first_damaged = min(map(os.path.basename, logs), default=None)
        has_swaps = any(path.name.endswith(".swap") for path in self._folder.iterdir())
        for path in sorted(self._folder.iterdir()):
            may_be_cut = has_swaps or (first_damaged is not None and path.name >= first_damaged)
            if path.suffix != LOG_SUFFIX or may_be_cut:
                self._backup.keep(path)

    def _recover(self) -> PartitionLog:
        dropped: list[str] = []
        environment = LogEnvironment(
            SystemClock(),
            producer_expiration_ms=NEVER_EXPIRE_MS,
            delete_later=lambda paths, _: dropped.extend(paths),
        )
        log = LogLoader(
            str(self._folder),
            partition_of(self._folder),
            LogConfig(),
            environment,
            clean=False,
            recovery_point=0,
            log_start_offset=self._log_start_offset,
            high_watermark=0,
            was_compacted=self._gaps_allowed,
        ).load()
        log.flush()
        ticket = log.close()
        if ticket is not None:
            ticket.run()
        for path in dropped:
            os.unlink(path)
        fsync_path(str(self._folder / LEADER_EPOCH_FILE))
        fsync_path(str(self._folder))
        return log


def carry_out(plan: SalvagePlan, backup: Backup) -> None:
    changed = [segment for segment in plan.segments if segment.is_changed]
    stems = {f"{segment.base_offset:020d}" for segment in changed}
    for path in sorted(Path(plan.folder).iterdir()):
        if path.suffix != LOG_SUFFIX or path.stem in stems:
            backup.keep(path)
    for segment in changed:
        _write(segment)
    fsync_path(plan.folder)
    for segment in changed:
        is_last = segment is plan.segments[-1]
        _remove(segment, [each for each in SEGMENT_SUFFIXES if each != LOG_SUFFIX])
        if segment.batches or is_last:
            os.replace(segment.path + CLEANED_SUFFIX, segment.path)
        else:
            os.unlink(segment.path + CLEANED_SUFFIX)
            _remove(segment, [LOG_SUFFIX])
    fsync_path(plan.folder)


def _write(segment: PlannedSegment) -> None:
    assert segment.batches is not None
    with open(segment.source, "rb") as file:
        content = file.read()
    with open(segment.path + CLEANED_SUFFIX, "wb") as file:
        for batch in segment.batches:
            file.write(batch.bytes_of(content))
        file.flush()
        os.fsync(file.fileno())


def _remove(segment: PlannedSegment, suffixes: Iterable[str]) -> None:
    stem = segment.path.removesuffix(LOG_SUFFIX)
    for suffix in suffixes:
        Path(stem + suffix).unlink(missing_ok=True)
