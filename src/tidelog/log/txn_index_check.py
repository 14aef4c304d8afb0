"""The transaction indexes of old segments against the markers in the segments.

A transaction index has no checksum, and one that is lost cannot be told from one that was never
needed. With a wrong one a read_committed reader would be shown aborted records. So before old
transactional batches are served to such a reader, the index of their segment is compared with the
segment's own markers, and those of the next segments as long as transactions reach into them. That
is one walk over a segment in the life of the process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidelog.log.index_file import CorruptIndex
from tidelog.log.log_host import LogHost
from tidelog.log.producer_state import ABORT_MARKER
from tidelog.log.segment import LogSegment
from tidelog.log.snapshot_files import SnapshotFiles, producers_before
from tidelog.log.txn_index import AbortedTxn

logger = logging.getLogger(__name__)


class TxnIndexCheck:
    """For the segments of one log, as they are now."""

    def __init__(
        self,
        segments: Sequence[LogSegment],
        snapshots: SnapshotFiles,
        host: LogHost,
        log_start_offset: int,
    ) -> None:
        self._segments = segments
        self._snapshots = snapshots
        self._host = host
        self._log_start_offset = log_start_offset

    def before_reading(self, segment: LogSegment | None) -> bool:
        """Of a segment whose records are about to be read; whether an index had to be written."""
        if segment is None or segment.unverified is None or not segment.unverified.has_transactions:
            return False
        changed = False
        for each in self._segments[self._segments.index(segment) :]:
            if each.unverified is None:
                break
            if not each.unverified.txn_index_checked:
                changed = self.repair(each) or changed
            if not each.unverified.has_open_transactions:
                break
        return changed

    def rebuild_damaged(self) -> None:
        """Those whose entries cannot be."""
        for segment in self._segments:
            try:
                segment.txn_index.entries()
            except CorruptIndex as problem:
                logger.warning("rebuilding a transaction index: %s", problem)
                self.repair(segment)

    def repair(self, segment: LogSegment) -> bool:
        """Whether the index was other than the segment says; it is right afterwards."""
        expected, markers, is_open = self._replay(segment)
        try:
            found = segment.txn_index.entries()
        except CorruptIndex:
            found = None
        # Transactions that began before what is known of their producers cannot be worked out.
        known = {aborted.last_offset for aborted in expected}
        expected += [
            entry
            for entry in found or ()
            if entry.last_offset not in known
            and (entry.producer_id, entry.last_offset) in markers
            and entry.first_offset < self._log_start_offset
        ]
        expected.sort(key=lambda aborted: aborted.last_offset)
        if segment.unverified is not None:
            segment.unverified.txn_index_checked = True
            segment.unverified.has_open_transactions = is_open
        if found == expected:
            return False
        if found is not None:
            logger.warning(
                "%s is not what %s says: writing it anew", segment.txn_index.path, segment.file.path
            )
        segment.txn_index.reset()
        for aborted in expected:
            segment.add_aborted(aborted)
        return True

    def _replay(self, segment: LogSegment) -> tuple[list[AbortedTxn], set[tuple[int, int]], bool]:
        """The aborted transactions, all abort markers, and whether transactions stay open."""
        table = producers_before(
            segment,
            self._snapshots,
            self._segments,
            log_start_offset=self._log_start_offset,
            now_ms=self._host.clock.time_ms(),
            expiration_ms=self._host.producer_expiration_ms,
        )
        expected = []
        markers = set()
        for piece in segment.scan(verify_crc=False):
            for row in piece.producers:
                if row[9] == ABORT_MARKER:
                    markers.add((row[0], row[5]))
                aborted = table.replay(row)
                if aborted is not None:
                    expected.append(aborted)
        return expected, markers, table.has_open_transactions
