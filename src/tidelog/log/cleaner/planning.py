"""What a round must know of its log, taken down on the broker loop before the thread begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tidelog.log.cleaner.cleanable import DirtyLog
from tidelog.log.cleaner.source_segment import SourceSegment
from tidelog.log.cleaner.transactions import LastRecord
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.txn_index import AbortedTxn
from tidelog.types import TopicPartition


class CleaningPlan(NamedTuple):
    topic_partition: TopicPartition
    directory: str
    first_dirty_offset: int
    end_offset: int
    sources: Sequence[SourceSegment]  # all below end_offset
    aborted: Sequence[AbortedTxn]  # that begin below end_offset
    last_records: Mapping[int, LastRecord]  # by producer id
    now_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int

    @property
    def dirty_sources(self) -> list[SourceSegment]:
        return [each for each in self.sources if each.end_offset > self.first_dirty_offset]


def plan_cleaning(dirty: DirtyLog, now_ms: int) -> CleaningPlan:
    """OSError or StorageError when an index that is needed cannot be read."""
    log, config = dirty.log, dirty.log.config
    sources = []
    for segment, following in pairwise(log.segments):
        if segment.base_offset >= dirty.end_offset:
            break
        start_position = 0
        if segment.base_offset < dirty.first_dirty_offset < following.base_offset:
            start_position = segment.indexed_position_of(dirty.first_dirty_offset)
        sources.append(SourceSegment(segment, following.base_offset, start_position))
    return CleaningPlan(
        log.topic_partition,
        str(log.directory),
        dirty.first_dirty_offset,
        dirty.end_offset,
        sources,
        log.aborted_before(dirty.end_offset),
        last_records_of(log.producers),
        now_ms,
        config.segment_bytes,
        config.segment_index_bytes,
        config.index_interval_bytes,
        config.delete_retention_ms,
    )


def last_records_of(table: ProducerStateTable) -> dict[int, LastRecord]:
    return {
        producer_id: LastRecord(
            entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch
        )
        for producer_id, entry in table.producers.items()
    }
