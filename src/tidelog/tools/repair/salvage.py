"""A salvage plan carried out: segments with damage are written anew without it.

The new files are written beside the old ones as `.cleaned` files; a broker takes those for work
that was not finished and removes them. They take their places once all are on the disk, and the
indexes of the old ones go before that: a broker that starts on a salvage cut short makes new ones.
A segment of which nothing is left goes, unless it is the last one: that one says where the log
ends. Everything that changes has been copied before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tidelog.log.index_file import fsync_path
from tidelog.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES
from tidelog.tools.repair.backup import Backup
from tidelog.tools.repair.salvage_plan import PlannedSegment, SalvagePlan


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
