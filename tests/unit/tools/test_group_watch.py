"""States of groups over scripted looks."""

from __future__ import annotations

import pytest

from tidelog.client.admin.groups import GroupMember
from tidelog.tools.group_lag import PartitionLag
from tidelog.tools.group_watch import (
    LAGS_MAX,
    LOOK_EVERY_MS,
    LOOKS_MAX,
    GroupWatch,
    Look,
    Status,
    group_status,
    partition_status,
)
from tidelog.types import TopicPartition

PLACE = TopicPartition("orders", 0)
MEMBER = GroupMember("m-1", None, "app", "/127.0.0.1", (PLACE,))


def looks(*pairs: tuple[int | None, int | None], is_owned: bool = True) -> list[Look]:
    """Five seconds apart; each is what is committed and where the log ends."""
    return [Look(5_000 * number, *pair, is_owned) for number, pair in enumerate(pairs)]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (looks((0, 10), (5, 20), (10, 30)), Status.UNKNOWN),  # ten seconds are too few
        (looks((0, 10), (10, 20), (30, 30), (30, 40)), Status.OK),  # it caught up once
        (looks((0, 90), (30, 100), (60, 110), (90, 120)), Status.OK),  # it shrinks
        (looks((0, 10), (1, 20), (2, 30), (3, 40)), Status.WARN),
        (looks((0, 10), (1, 11), (2, 12), (3, 13)), Status.WARN),  # it keeps, and never shrinks
        (looks((7, 10), (7, 20), (7, 30), (7, 40)), Status.STALL),
        (looks((7, 10), (7, 10), (7, 10), (7, 10), is_owned=False), Status.STOP),
        (looks((7, 10), (8, 20), (2, 30), (3, 40)), Status.REWIND),
        (looks((7, 7), (7, 7), (7, 7), (7, 7), is_owned=False), Status.OK),  # nothing waits
        (looks((9, 5), (9, 5), (9, 5), (9, 5)), Status.OK),  # the log was cut below it
        (looks((None, 10), (None, 20), (None, 30), (None, 40)), Status.UNKNOWN),
        (looks((7, None), (7, 10), (7, 10), (7, 10), (7, 10)), Status.STALL),
        ([], Status.UNKNOWN),
    ],
)
def test_a_partition_is_judged_by_its_looks(seen: list[Look], expected: Status) -> None:
    assert partition_status(seen) is expected


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], Status.UNKNOWN),
        ([Status.UNKNOWN, Status.OK], Status.OK),
        ([Status.OK, Status.WARN], Status.WARN),
        ([Status.OK, Status.WARN, Status.STALL], Status.ERR),
        ([Status.STOP], Status.ERR),
        ([Status.REWIND, Status.OK], Status.ERR),
    ],
)
def test_a_group_is_as_bad_as_its_worst_partition(statuses: list[Status], expected: Status) -> None:
    assert group_status(statuses) is expected


def row(committed: int | None, end: int | None, index: int = 0) -> PartitionLag:
    return PartitionLag(TopicPartition("orders", index), committed, end, MEMBER)


def test_a_watched_group_has_its_lag_over_time_and_a_status() -> None:
    watch = GroupWatch()
    for number in range(5):
        watch.note("billing", number * 5_000, [row(0, 10 + number), row(3, 3, index=1)])

    group = watch.group("billing")
    assert [point.lag for point in group.lags] == [10, 11, 12, 13, 14]
    assert group.partition_status(PLACE) is Status.STALL
    assert group.partition_status(TopicPartition("orders", 1)) is Status.OK
    assert group.status is Status.ERR


def test_many_readers_do_not_shorten_the_time_that_looks_span() -> None:
    watch = GroupWatch()
    for at_ms in range(0, 3 * LOOK_EVERY_MS, 100):
        watch.note("billing", at_ms, [row(0, 1)])
    assert [point.at_ms for point in watch.group("billing").lags] == [
        0,
        LOOK_EVERY_MS,
        2 * LOOK_EVERY_MS,
    ]


def test_a_group_that_nobody_looked_at_is_unknown() -> None:
    assert GroupWatch().group("nobody").status is Status.UNKNOWN


def test_what_is_kept_is_bounded() -> None:
    watch = GroupWatch(groups_max=3)
    for at in range(LAGS_MAX + 20):
        watch.note("long", at * LOOK_EVERY_MS, [row(at, at + 1)])
    group = watch.group("long")
    assert len(group.lags) == LAGS_MAX
    assert len(group.looks[PLACE]) == LOOKS_MAX
    for name in ("a", "b", "c"):
        watch.note(name, 0, [row(0, 1)])
    assert not watch.group("long").lags
    assert all(watch.group(name).lags for name in ("a", "b", "c"))


def test_partitions_that_are_kept_are_bounded_over_all_groups() -> None:
    watch = GroupWatch(partitions_max=10)
    watch.note("first", 0, [row(0, 1, index) for index in range(6)])
    watch.note("second", 0, [row(0, 1, index) for index in range(6)])
    assert not watch.group("first").looks
    assert len(watch.group("second").looks) == 6
    watch.note("large", 0, [row(0, 1, index) for index in range(11)])
    assert (watch.group("large").lags[0].lag, watch.group("large").looks) == (11, {})


def test_a_partition_that_is_gone_is_forgotten() -> None:
    watch = GroupWatch()
    watch.note("billing", 0, [row(0, 1), row(0, 1, index=1)])
    watch.note("billing", 9_000, [row(0, 1)])
    assert list(watch.group("billing").looks) == [PLACE]
