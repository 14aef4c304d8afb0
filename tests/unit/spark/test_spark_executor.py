from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tidelog.client.errors import LogTruncation, OffsetOutOfRange, UnknownTopic
from tidelog.spark.executor import read_what_is_there
from tidelog.spark.offset_ranges import OffsetRange
from tidelog.spark.options import DataLoss, DataLossPolicy
from tidelog.types import TopicPartition

T = TopicPartition("t", 0)
FAIL, GO_ON = DataLossPolicy(True), DataLossPolicy(False)


class Log:
    """A reader, and the cluster behind it, over one log that may change while it is read."""

    def __init__(self, earliest: int, latest: int) -> None:
        self.earliest = earliest
        self.latest = latest
        self.is_there = True
        self.truncated_at: int | None = None
        self.cluster = self

    def earliest_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.earliest)

    def latest_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.latest)

    def fetch_columns(self, partition: object, start: int, end: int) -> Iterator[Any]:
        position = start
        while position < end:
            if not self.is_there:
                raise UnknownTopic("topic t", 3)
            if self.truncated_at == position > start:
                raise LogTruncation(f"t-0 was truncated to {position - 1}")
            if not self.earliest <= position < self.latest:
                raise OffsetOutOfRange("out of range", 1)
            yield pa.RecordBatch.from_pydict({"offset": [position]})
            position += 1


def offsets(log: Any, start: int, end: int, policy: DataLossPolicy) -> list[int]:
    batches = read_what_is_there(log, OffsetRange(T, start, end), policy)
    return [batch.column("offset")[0].as_py() for batch in batches]


def test_a_range_that_is_there_is_read() -> None:
    assert offsets(Log(0, 10), 3, 6, FAIL) == [3, 4, 5]


def test_a_range_whose_start_is_gone_begins_later_or_fails() -> None:
    assert offsets(Log(5, 10), 3, 7, GO_ON) == [5, 6]
    assert offsets(Log(8, 10), 3, 7, GO_ON) == []
    with pytest.raises(DataLoss, match="offsets 3 to 4 of t-0 are gone: its log begins at 5"):
        offsets(Log(5, 10), 3, 7, FAIL)


def test_a_range_whose_end_is_gone_ends_earlier_or_fails() -> None:
    assert offsets(Log(0, 5), 3, 9, GO_ON) == [3, 4]
    with pytest.raises(DataLoss, match="offsets 5 to 8 of t-0 are gone: its log ends at 5"):
        offsets(Log(0, 5), 3, 9, FAIL)


def test_records_that_go_while_they_are_read_are_skipped() -> None:
    log: Any = Log(0, 10)
    rows = read_what_is_there(log, OffsetRange(T, 0, 9), GO_ON)
    next(rows)
    log.earliest = 7
    assert [row.column("offset")[0].as_py() for row in rows] == [7, 8]


def test_a_topic_that_goes_while_it_is_read_ends_the_range_or_fails() -> None:
    gone = Log(0, 10)
    gone.is_there = False
    assert offsets(gone, 0, 5, GO_ON) == []
    with pytest.raises(DataLoss, match=r"t-0 \[0, 5\) cannot be read"):
        offsets(gone, 0, 5, FAIL)


def test_a_log_that_is_truncated_while_it_is_read_is_told_and_read_on_or_fails() -> None:
    log = Log(0, 10)
    log.truncated_at = 3
    assert offsets(log, 0, 5, GO_ON) == [0, 1, 2, 3, 4]
    with pytest.raises(DataLoss, match="t-0 was truncated to 2"):
        offsets(log, 0, 5, FAIL)
