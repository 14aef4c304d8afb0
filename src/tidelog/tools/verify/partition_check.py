"""Everything in the folder of one log, against everything else in it.

Memory is bounded by the index files of one segment: batches are looked at once, in order, by all
the checks. Nothing is changed, and nothing is believed that can be compared.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from tidelog.log.directory.checkpoints import PARTITION_METADATA_FILE, read_partition_metadata
from tidelog.log.log_errors import CorruptCheckpoint
from tidelog.log.log_loader import OFFSET_DIGITS
from tidelog.log.segment.log_segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from tidelog.tools.verify.epoch_check import EpochCheck
from tidelog.tools.verify.finding import Finding, Kind
from tidelog.tools.verify.good_batches import GoodBatches
from tidelog.tools.verify.index_checks import OffsetIndexCheck, SegmentFacts, TimeIndexCheck
from tidelog.tools.verify.producer_check import ProducerCheck

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
LEFTOVERS = {
    DELETED_SUFFIX: (Kind.REMARK, "a file on its way out"),
    CLEANED_SUFFIX: (Kind.LEFTOVER, "a cleaning that was not finished"),
}


class Expectations(NamedTuple):
    """What the log directory says of a log; None where it says nothing."""

    is_clean: bool
    recovery_point: int | None
    high_watermark: int | None
    log_start_offset: int | None
    cleaned_offset: int | None
    may_have_gaps: bool  # as compaction leaves them


class PartitionSummary(NamedTuple):
    folder: str
    segments_count: int
    bytes_count: int
    first_offset: int
    end_offset: int
    has_gaps: bool
    findings: list[Finding]


class PartitionCheck:
    def __init__(self, folder: str, expected: Expectations) -> None:
        self._folder = folder
        self._expected = expected
        self._findings: list[Finding] = []
        self._names = sorted(os.listdir(folder))
        self._bases = self._offsets_of(LOG_SUFFIX)
        first = self._bases[0] if self._bases else 0
        self._log_start_offset = max(expected.log_start_offset or 0, first)
        self._gaps_allowed = expected.may_have_gaps
        self._has_gaps = False
        self._is_whole = True
        self._end_offset = first
        self._bytes = 0

    def run(self) -> PartitionSummary:
        self._check_names()
        self._check_metadata()
        snapshots = self._offsets_of(SNAPSHOT_SUFFIX)
        epochs = EpochCheck(self._folder, self._log_start_offset, self._report)
        producers = ProducerCheck(
            self._folder, snapshots, self._report, gaps_allowed=self._gaps_allowed
        )
        for number, base_offset in enumerate(self._bases):
            self._check_segment(number, base_offset, epochs, producers)
        producers.finish(self._end_offset)
        epochs.finish(self._end_offset, log_is_whole=self._is_whole)
        self._check_offsets()
        return PartitionSummary(
            self._folder,
            len(self._bases),
            self._bytes,
            self._bases[0] if self._bases else 0,
            self._end_offset,
            self._has_gaps,
            self._findings,
        )

    def _report(self, finding: Finding) -> None:
        self._findings.append(finding)

    def _say(self, kind: Kind, path: str, problem: str, recovery: str) -> None:
        self._report(Finding(kind, path, problem, recovery))

    def _offsets_of(self, suffix: str) -> list[int]:
        return [
            int(name[:OFFSET_DIGITS])
            for name in self._names
            if name.endswith(suffix) and name.removesuffix(suffix).isdecimal()
        ]

    # Files

    def _check_names(self) -> None:
        if not self._bases:
            self._say(
                Kind.REMARK, self._folder, "it holds no segment", "an empty log is made there"
            )
        stems = {f"{base:020d}" for base in self._bases}
        for name in self._names:
            path = os.path.join(self._folder, name)
            suffix = os.path.splitext(name)[1]
            if suffix in LEFTOVERS:
                kind, what = LEFTOVERS[suffix]
                self._say(kind, path, what, "it is removed")
            elif suffix == SWAP_SUFFIX:
                self._say(
                    Kind.LOG,
                    path,
                    "a cleaning that was interrupted",
                    "it takes the place of the segments that it covers",
                )
            elif suffix in INDEX_SUFFIXES and os.path.splitext(name)[0] not in stems:
                self._say(Kind.LEFTOVER, path, "an index without a segment", "it is removed")

    def _check_metadata(self) -> None:
        path = os.path.join(self._folder, PARTITION_METADATA_FILE)
        try:
            read_partition_metadata(self._folder)
        except CorruptCheckpoint as problem:
            self._say(
                Kind.LEFTOVER,
                path,
                str(problem).removeprefix(f"{path}: "),
                "it is written anew with the topic id that the broker's metadata has",
            )
            return
        if PARTITION_METADATA_FILE not in self._names:
            self._say(Kind.REMARK, path, "there is none", "it is written at the next start")

    # Segments

    def _check_segment(
        self, number: int, base_offset: int, epochs: EpochCheck, producers: ProducerCheck
    ) -> None:
        stem = os.path.join(self._folder, f"{base_offset:020d}")
        is_last = number == len(self._bases) - 1
        walk = GoodBatches(stem + LOG_SUFFIX, base_offset)
        size = os.path.getsize(walk.path)
        facts = SegmentFacts(stem, base_offset, size, self._expected.is_clean or not is_last)
        offset_index = OffsetIndexCheck(facts, self._report)
        time_index = TimeIndexCheck(facts, self._report)
        if self._is_whole and number:
            self._check_border(walk.path, base_offset)
        producers.begin_segment(stem, base_offset)
        expected = base_offset
        for batch in walk:
            # Where a compressed batch of an old format begins, its header does not say.
            if batch.base_offset != expected and batch.records_count >= 0:
                self._note_gap(walk.path, batch.position, expected, batch.base_offset)
            expected = batch.last_offset + 1
            offset_index.batch(batch)
            time_index.batch(batch)
            epochs.batch(walk.path, batch)
            producers.batch(batch)
        is_whole = walk.position == size
        if not is_whole:
            self._say_damage(walk, number)
        offset_index.finish(log_is_whole=is_whole)
        time_index.finish(log_is_whole=is_whole)
        producers.end_segment(is_whole=is_whole)
        self._is_whole = self._is_whole and is_whole
        self._bytes += size
        self._end_offset = max(self._end_offset, walk.next_offset)

    def _check_border(self, path: str, base_offset: int) -> None:
        if self._end_offset > base_offset:
            self._report(
                Finding(
                    Kind.LOG,
                    path,
                    f"it begins at offset {base_offset}, but the segment before it reaches "
                    f"{self._end_offset - 1}",
                    "the log is cut where they contradict each other",
                    0,
                    base_offset,
                )
            )
        elif self._end_offset < base_offset:
            self._note_gap(path, 0, self._end_offset, base_offset)

    def _note_gap(self, path: str, position: int, expected: int, found: int) -> None:
        """Compacted logs have gaps; the checkpoint of the cleaner tells which ones are."""
        self._has_gaps = True
        if not self._gaps_allowed:
            self._report(
                Finding(
                    Kind.LOG,
                    path,
                    f"offset {found} where {expected} is due, and the log was never compacted",
                    "a single batch with a wrong offset is cut off; what is lost stays lost",
                    position,
                    found,
                )
            )

    def _say_damage(self, walk: GoodBatches, number: int) -> None:
        later = len(self._bases) - 1 - number
        recovery = f"{walk.size - walk.position} bytes are cut off"
        if later:
            recovery += f" and {later} later segment{'s' if later > 1 else ''} dropped"
        self._report(
            Finding(
                Kind.LOG,
                walk.path,
                walk.problem or "a batch that is not whole",
                recovery,
                walk.position,
                walk.next_offset,
            )
        )

    # Checkpoints

    def _check_offsets(self) -> None:
        if not self._is_whole or not self._bases:
            return
        end = self._end_offset
        expected = self._expected
        self._compare("recovery-point-offset-checkpoint", expected.recovery_point, end)
        for name, offset in (
            ("replication-offset-checkpoint", expected.high_watermark),
            ("cleaner-offset-checkpoint", expected.cleaned_offset),
        ):
            if offset is not None and offset > end:
                self._say_checkpoint(name, f"it says {offset}, but the log ends at {end}")
        if expected.log_start_offset is not None and expected.log_start_offset > end:
            self._say_checkpoint(
                "log-start-offset-checkpoint",
                f"it says {expected.log_start_offset}, but the log ends at {end}",
                "all segments are dropped and the log begins anew there",
            )

    def _compare(self, name: str, recovery_point: int | None, end: int) -> None:
        if recovery_point is None:
            if self._expected.is_clean and end:
                self._say_checkpoint(name, "it has no row for this log", "none is needed")
        elif recovery_point > end:
            self._say_checkpoint(
                name,
                f"it says that {recovery_point} had been reached, but the log ends at {end}",
                "records are lost; the log goes on from its end",
            )
        elif self._expected.is_clean and recovery_point != end:
            self._say_checkpoint(
                name,
                f"it says {recovery_point}, but the log ends at {end} after a clean stop",
                f"the log is read from offset {recovery_point} on",
            )

    def _say_checkpoint(
        self, name: str, problem: str, recovery: str = "it is written anew"
    ) -> None:
        path = os.path.join(os.path.dirname(self._folder), name)
        topic_partition = os.path.basename(self._folder)
        self._say(Kind.CHECKPOINT, path, f"{topic_partition}: {problem}", recovery)
