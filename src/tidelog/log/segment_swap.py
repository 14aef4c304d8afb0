"""A cleaned segment takes the place of the segments it was made from, one rename after another.

    .cleaned -> .swap      of the new files; from here on a crash is finished by the next start
    live -> .deleted       of the old files and of the producer snapshots between them
    .swap -> live          of the new files

Whatever a crash leaves, `recovery` finishes or undoes. Readers in the middle of an old segment keep
its open file; `.deleted` files stay for file.delete.delay.ms for those that have yet to open it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.log.segment import LogSegment
from tidelog.log.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from tidelog.log.cleaner.cleaned_segment import CleanedSegment


def swap_in(
    cleaned: CleanedSegment,
    replaced: Sequence[LogSegment],
    snapshots: SnapshotFiles,
    created_ms: int,
) -> tuple[LogSegment, list[str]]:
    """The segment in its place, and the paths that are to be removed later."""
    cleaned.become_swap()
    paths: list[str] = []
    for segment in replaced:
        paths += segment.mark_deleted()
        if segment.base_offset != cleaned.base_offset:
            paths += snapshots.mark_deleted(segment.base_offset)
    return cleaned.go_live(created_ms), paths
