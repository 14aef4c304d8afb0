"""Plots of the lag of groups."""

from __future__ import annotations

from tidelog.tools.console.pages.groups import lag_trend
from tidelog.tools.group_lag import PartitionLag
from tidelog.tools.group_watch import WatchedGroup
from tidelog.types import TopicPartition


def watched(*times_ms: int) -> WatchedGroup:
    group = WatchedGroup()
    for at_ms in times_ms:
        group.note(at_ms, [PartitionLag(TopicPartition("orders", 0), 3, 10, None)])
    return group


def test_a_plot_begins_with_the_second_look() -> None:
    assert lag_trend(watched(0)) is None
    trend = lag_trend(watched(0, 5_000))
    assert trend is not None
    assert "7" in trend.description


def test_a_plot_has_a_gap_where_nobody_looked() -> None:
    trend = lag_trend(watched(0, 5_000, 600_000, 605_000))
    assert trend is not None
    assert trend.lines[0].path.count("M") == 2
