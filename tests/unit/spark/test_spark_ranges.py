from __future__ import annotations

import pytest

from tidelog.spark.data_loss import DataLoss, DataLossPolicy
from tidelog.spark.options import InvalidOption
from tidelog.spark.planning import OffsetRange
from tidelog.spark.ranges import ranges_within, require_all
from tidelog.types import TopicPartition

T = TopicPartition("t", 0)
FAIL, GO_ON = DataLossPolicy(True), DataLossPolicy(False)


def range_of(start: int, end: int, policy: DataLossPolicy) -> OffsetRange:
    """Of a log that holds the offsets 10 to 19."""
    return ranges_within({T: start}, {T: end}, {T: 10}, {T: 20}, policy)[0]


def test_offsets_that_the_log_holds_are_taken_as_they_are() -> None:
    assert range_of(10, 20, FAIL) == (T, 10, 20)
    assert range_of(20, 20, FAIL).size == 0


@pytest.mark.parametrize("policy", [FAIL, GO_ON])
def test_a_start_beyond_the_log_is_an_error_whatever_the_policy(policy: DataLossPolicy) -> None:
    with pytest.raises(InvalidOption, match="21 of t-0 lies beyond the end of its log, 20"):
        range_of(21, 25, policy)


def test_an_end_beyond_the_log_is_data_loss_or_what_there_is() -> None:
    with pytest.raises(DataLoss, match=r"up to 25: its log ends at 20.*failOnDataLoss"):
        range_of(12, 25, FAIL)
    assert range_of(12, 25, GO_ON) == (T, 12, 20)


def test_a_start_before_the_log_is_data_loss_or_its_beginning() -> None:
    with pytest.raises(DataLoss, match="from 5: its log begins at 10"):
        range_of(5, 15, FAIL)
    assert range_of(5, 15, GO_ON) == (T, 10, 15)
    assert range_of(5, 8, GO_ON).size < 0


def test_a_start_after_the_end_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="after its end at 12"):
        range_of(15, 12, GO_ON)


def test_offsets_must_name_exactly_the_partitions_that_are_read() -> None:
    other = TopicPartition("t", 1)
    require_all("startingOffsets", {T: 1}, {T})
    with pytest.raises(InvalidOption, match="leaves out t-1"):
        require_all("startingOffsets", {T: 1}, {T, other})
    with pytest.raises(InvalidOption, match="names t-1, not read by this query"):
        require_all("startingOffsets", {T: 1, other: 2}, {T})
