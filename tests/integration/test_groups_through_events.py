"""Groups of real clients through random events; the full size is
`python -m tests.support.group_harness`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.broker_process import EXTERNAL_BOOTSTRAP
from tests.support.group_harness import GroupHarness, GroupKind
from tests.support.group_process import MemberProcess, misdeliveries, overlaps


@pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="needs a broker of its own")
def test_no_partition_is_shared_and_no_record_is_skipped_through_random_events(
    tmp_path: Path,
) -> None:
    kinds = [
        GroupKind("confluent", "cooperative-sticky", is_static=True),
        GroupKind("aiokafka", "roundrobin"),
        GroupKind("kafka-python", "sticky"),
    ]
    harness = GroupHarness(tmp_path, kinds, seed=2)
    try:
        harness.run(18)
    finally:
        harness.close()
    assert harness.events.total() == 18


@pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="needs a broker of its own")
@pytest.mark.parametrize(
    "kind",
    [
        GroupKind("tidelog+tidelog-async+confluent", "cooperative-sticky"),
        GroupKind("tidelog+tidelog-async+confluent", "range", is_static=True),
        GroupKind("tidelog+tidelog-async+confluent", "uniform", protocol="consumer"),
    ],
    ids=str,
)
def test_tidelogs_members_share_groups_with_confluents_through_random_events(
    tmp_path: Path, kind: GroupKind
) -> None:
    harness = GroupHarness(tmp_path, [kind], seed=3)
    try:
        harness.run(6)
    finally:
        harness.close()
    assert harness.events.total() == 6


def member(pid: int, *events: tuple[float, str, Any]) -> MemberProcess:
    """One partition, 0; an event's last item is its offset, if it has one."""
    rows = []
    for at, what, offset in events:
        row = {"at": at, "what": what, "partitions": [0]}
        if what == "record":
            row |= {"partition": 0, "offset": offset}
        elif what.startswith("commit"):
            row["offsets"] = [[0, offset]]
        rows.append(row)
    made = SimpleNamespace(
        process=SimpleNamespace(pid=pid), events=rows, killed_at=None, evicted_at=[]
    )
    return cast(MemberProcess, made)


class TestTheJudge:
    """A judge that finds nothing proves nothing."""

    FIRST = (
        (1.0, "assigned", None),
        (1.1, "record", 0),
        (1.2, "record", 1),
        (1.3, "committing", 2),
        (1.4, "committed", 2),
        (1.5, "record", 2),
        (1.6, "committing", 3),
        (2.0, "revoked", None),
    )

    @pytest.mark.parametrize("begin", [2, 3], ids=["last answered", "last asked for"])
    def test_next_owner_goes_on_from_a_commit(self, begin: int) -> None:
        second = member(2, (2.1, "assigned", None), (2.2, "record", begin))
        assert misdeliveries([member(1, *self.FIRST), second]) == []
        assert overlaps([member(1, *self.FIRST), second]) == []

    def test_lost_commit_is_noticed(self) -> None:
        second = member(2, (2.1, "assigned", None), (2.2, "record", 1))
        (found,) = misdeliveries([member(1, *self.FIRST), second])
        assert "began at 1, 2 was committed" in found

    def test_skipped_record_is_noticed(self) -> None:
        second = member(2, (2.1, "assigned", None), (2.2, "record", 4))
        (found,) = misdeliveries([member(1, *self.FIRST), second])
        assert "nobody committed more than 3" in found

    def test_gap_between_records_is_noticed(self) -> None:
        second = member(2, (2.1, "assigned", None), (2.2, "record", 2), (2.3, "record", 4))
        (found,) = misdeliveries([member(1, *self.FIRST), second])
        assert "records [2, 4]" in found

    def test_two_owners_at_one_time_are_noticed(self) -> None:
        second = member(2, (1.9, "assigned", None))
        (found,) = overlaps([member(1, *self.FIRST), second])
        assert "partition 0" in found

    def test_who_is_stopped_for_longer_than_its_session_owns_nothing_after_that(self) -> None:
        first = member(1, *self.FIRST)
        first.evicted_at.append(1.7)
        second = member(2, (1.9, "assigned", None), (2.2, "record", 2))
        assert overlaps([first, second]) == []
        assert misdeliveries([first, second]) == []
