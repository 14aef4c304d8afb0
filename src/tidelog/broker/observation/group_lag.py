"""How far a group lags behind, in seconds, and how many members it has.

The age is that of the batch with the first record that the group has not committed, by the largest
timestamp of the batch. The log is read there as a fetch would read it, and only the header of the
batch is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
from tidelog.errors import KafkaError
from tidelog.log.segment.segment_walk import WalkDue
from tidelog.record.batch import HEADER_SIZE, max_timestamp_of

if TYPE_CHECKING:
    from tidelog.coordinator.group.group import Group
    from tidelog.replication.partition import Partition


def members_of(group: Group) -> int:
    if isinstance(group, ClassicGroup | ConsumerGroup):
        return len(group.members)
    return 0


def age_s(partition: Partition, offset: int, now_ms: int) -> float | None:
    """Of what a reader at the offset reads next. None where that cannot be told without a long walk
    over the log, or where the batch has no timestamp.
    """
    log = partition.log
    try:
        records = log.read(
            max(offset, log.log_start_offset),
            1,
            up_to_offset=log.high_watermark,
            min_one_batch=True,
        ).records
        if records is None:
            return None
        timestamp = max_timestamp_of(records.read_part(0, HEADER_SIZE))
    except (KafkaError, WalkDue, OSError):
        return None
    return None if timestamp < 0 else max(now_ms - timestamp, 0) / 1000
