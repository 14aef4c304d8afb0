"""Offsets of many groups go a few at a time, and whatever happens in between is respected."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.clock import BusyClock
from tests.support.group_stage import GroupStage
from tests.support.new_offsets import new_offset
from tidelog.coordinator.group.offset_removal import TOMBSTONES_MAX, Piece, TombstoneWriter
from tidelog.coordinator.group.offsets import GroupOffsets
from tidelog.errors import ErrorCode, KafkaError
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.replication.partition import Partition
from tidelog.slices import SlicedWork

GROUPS = 300
RETENTION = {"offsets.retention.minutes": "1"}
MINUTE_MS = 60_000


@pytest.fixture
def stage(tmp_path: Path) -> GroupStage:
    """One step of work a turn of the loop."""
    stage = GroupStage(tmp_path, RETENTION)
    stage.groups.work = SlicedWork(BusyClock(), stage.clock, 0.0015)
    return stage


def commit(
    stage: GroupStage, group_id: str, topic: str, *, offset: int = 1, partitions: int = 1
) -> None:
    now_ms = stage.clock.time_ms()
    stage.groups.commit_offsets(
        group_id,
        [new_offset(topic, n, offset, 0, "", now_ms) for n in range(partitions)],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        knows_member_epochs=True,
    )


def stage_offset(stage: GroupStage, group_id: str, topic: str, *, producer_id: int) -> None:
    """An offset in a transaction that is still open."""
    stage.groups.commit_transactional_offsets(
        group_id,
        [new_offset(topic, 0, 99, 0, "", stage.clock.time_ms())],
        producer_id=producer_id,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
    )


def commit_transaction(stage: GroupStage, group_id: str, producer_id: int) -> None:
    marker = marker_batch(
        EndTransactionMarker(ControlType.COMMIT, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=stage.clock.time_ms(),
    )
    index = stage.groups.offsets_partition(group_id).partition
    stage.groups.runtime.write_marker(index, memoryview(marker), producer_id, committed=True)


def committed_offsets(stage: GroupStage, group_id: str) -> list[tuple[str, int]]:
    offsets = stage.groups.offsets_of(group_id)
    return [(topic, committed.offset) for topic, _, committed in offsets or ()]


def commit_all(stage: GroupStage, topic: str) -> None:
    for number in range(GROUPS):
        commit(stage, f"g{number}", topic)


def end_offsets(stage: GroupStage) -> int:
    return sum(partition.log.log_end_offset for partition in stage.partitions)


def one_turn(stage: GroupStage) -> int:
    """How many records it writes."""
    before = end_offsets(stage)
    timers, stage.clock._timers = stage.clock._timers, []
    for _, _, handle in timers:
        handle.callback()
    return end_offsets(stage) - before


def turns(stage: GroupStage) -> list[int]:
    """The records of each turn until the work is done."""
    written = []
    while stage.clock.pending_timers():
        written.append(one_turn(stage))
    return written


def groups_left(stage: GroupStage) -> set[str]:
    return {group.group_id for group in stage.groups.list_groups()}


def assert_a_restart_reads_the_same(stage: GroupStage) -> None:
    assert groups_left(GroupStage.reading(stage)) == groups_left(stage)


def test_deleting_a_topic_looks_at_no_group_that_has_not_committed_it(
    stage: GroupStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_all(stage, "kept")
    commit(stage, "g7", "gone")
    looks: Counter[str] = Counter()
    pieces = GroupOffsets.pieces

    def counted(self: GroupOffsets, topic: str) -> object:
        looks[topic] += 1
        return pieces(self, topic)

    monkeypatch.setattr(GroupOffsets, "pieces", counted)
    before = end_offsets(stage)
    stage.groups.topic_deleted("gone")
    turns(stage)
    assert looks == {"gone": 1}
    assert end_offsets(stage) == before + 1


def test_a_topic_of_many_groups_is_forgotten_a_few_groups_a_turn(stage: GroupStage) -> None:
    commit_all(stage, "t")
    before = end_offsets(stage)
    stage.groups.topic_deleted("t")
    written = [end_offsets(stage) - before, *turns(stage)]
    assert max(written) <= TOMBSTONES_MAX
    assert sum(written) == GROUPS
    assert not groups_left(stage)
    assert_a_restart_reads_the_same(stage)


def test_what_is_committed_for_a_new_topic_of_that_name_stays(stage: GroupStage) -> None:
    commit_all(stage, "t")
    stage.groups.topic_deleted("t")
    late = sorted(groups_left(stage))[-1]
    commit(stage, late, "t", offset=77)
    turns(stage)
    assert groups_left(stage) == {late}
    offsets = stage.groups.offsets_of(late)
    assert [committed.offset for _, _, committed in offsets or ()] == [77]
    assert_a_restart_reads_the_same(stage)


def test_offsets_of_a_deleted_topic_do_not_come_with_the_end_of_a_transaction(
    stage: GroupStage,
) -> None:
    commit(stage, "both", "gone")
    for group_id in ("both", "staged", "other"):
        stage_offset(stage, group_id, "kept" if group_id == "other" else "gone", producer_id=7)
    stage.groups.topic_deleted("gone")
    turns(stage)
    for group_id in ("both", "other"):
        commit_transaction(stage, group_id, 7)
    assert not committed_offsets(stage, "both")
    assert not committed_offsets(stage, "staged")
    assert committed_offsets(stage, "other") == [("kept", 99)]
    assert_a_restart_reads_the_same(stage)


def test_groups_with_open_transactions_that_have_nothing_of_the_topic_are_left_alone(
    stage: GroupStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without offsets stays until it expires."""
    commit(stage, "g", "gone")
    stage_offset(stage, "other", "kept", producer_id=7)
    touched = set()
    add = TombstoneWriter.add

    def noted(self: TombstoneWriter, piece: Piece) -> None:
        touched.add(piece[0])
        add(self, piece)

    monkeypatch.setattr(TombstoneWriter, "add", noted)
    stage.groups.topic_deleted("gone")
    turns(stage)
    assert touched == {"g"}


def test_very_many_offsets_of_an_open_transaction_go_a_few_a_turn(stage: GroupStage) -> None:
    for number in range(GROUPS):
        stage_offset(stage, f"g{number}", "t", producer_id=7)
    before = end_offsets(stage)
    stage.groups.topic_deleted("t")
    written = [end_offsets(stage) - before, *turns(stage)]
    assert max(written) <= TOMBSTONES_MAX
    assert sum(written) == GROUPS
    assert not groups_left(stage)


def test_what_is_staged_for_a_new_topic_of_that_name_stays(stage: GroupStage) -> None:
    commit_all(stage, "t")
    stage.groups.topic_deleted("t")
    late = sorted(groups_left(stage))[-1]
    stage_offset(stage, late, "t", producer_id=7)
    turns(stage)
    commit_transaction(stage, late, 7)
    assert committed_offsets(stage, late) == [("t", 99)]


def test_an_offset_does_not_expire_while_a_transaction_replaces_it(stage: GroupStage) -> None:
    commit(stage, "g", "t")
    stage.clock.advance(ms=MINUTE_MS)
    stage_offset(stage, "g", "t", producer_id=7)
    stage.groups.expire_offsets()
    turns(stage)
    commit_transaction(stage, "g", 7)
    assert committed_offsets(stage, "g") == [("t", 99)]
    stage.clock.advance(ms=MINUTE_MS)
    stage.groups.expire_offsets()
    turns(stage)
    assert not groups_left(stage)


def test_many_offsets_expire_a_few_a_turn(stage: GroupStage) -> None:
    for number in range(40):
        commit(stage, f"g{number}", "t", partitions=30)
    stage.clock.advance(ms=MINUTE_MS)
    before = end_offsets(stage)
    stage.groups.expire_offsets()
    written = [end_offsets(stage) - before, *turns(stage)]
    assert max(written) < TOMBSTONES_MAX + 30
    assert sum(written) == 40 * 30
    assert not groups_left(stage)
    assert_a_restart_reads_the_same(stage)


def test_a_group_with_very_many_offsets_expires_a_few_a_turn(stage: GroupStage) -> None:
    commit(stage, "g", "t", partitions=1000)
    stage.clock.advance(ms=MINUTE_MS)
    before = end_offsets(stage)
    stage.groups.expire_offsets()
    written = [end_offsets(stage) - before, *turns(stage)]
    assert max(written) <= TOMBSTONES_MAX
    assert sum(written) == 1000
    assert not groups_left(stage)


def test_an_offset_that_is_committed_again_does_not_expire(stage: GroupStage) -> None:
    commit_all(stage, "t")
    stage.clock.advance(ms=MINUTE_MS)
    stage.groups.expire_offsets()
    late = sorted(groups_left(stage))[-1]
    commit(stage, late, "t")
    turns(stage)
    assert groups_left(stage) == {late}


def test_a_group_that_is_deleted_meanwhile_is_no_obstacle(stage: GroupStage) -> None:
    commit_all(stage, "t")
    stage.clock.advance(ms=MINUTE_MS)
    stage.groups.expire_offsets()
    late = sorted(groups_left(stage))[-1]
    assert stage.groups.delete_group(late) is ErrorCode.NONE
    turns(stage)
    assert not groups_left(stage)


def test_a_coordinator_that_has_resigned_removes_nothing_more(stage: GroupStage) -> None:
    commit_all(stage, "t")
    stage.clock.advance(ms=MINUTE_MS)
    stage.groups.expire_offsets()
    assert stage.clock.pending_timers()
    stage.groups.runtime.resign_all()
    stage.groups.runtime.host(stage.partitions, len(stage.partitions))
    before = end_offsets(stage)
    turns(stage)
    assert end_offsets(stage) == before


def test_a_group_with_very_many_offsets_is_deleted_a_few_at_a_time(stage: GroupStage) -> None:
    commit(stage, "g", "t", partitions=TOMBSTONES_MAX * 2 + 1)
    outcomes = [stage.groups.delete_group("g") for _ in range(3)]
    assert outcomes == [None, None, ErrorCode.NONE]
    assert not groups_left(stage)
    assert_a_restart_reads_the_same(stage)


def test_long_names_make_batches_smaller(stage: GroupStage) -> None:
    for number in range(20):
        commit(stage, f"{number}" + "x" * 20_000, "t")
    before = end_offsets(stage)
    stage.groups.topic_deleted("t")
    written = [end_offsets(stage) - before, *turns(stage)]
    assert max(written) <= 4
    assert sum(written) == 20


def test_a_topic_that_is_deleted_while_its_offsets_are_loaded_leaves_none(
    stage: GroupStage,
) -> None:
    commit(stage, "g", "gone", offset=5)
    commit(stage, "g", "kept", offset=6)
    stage_offset(stage, "staged", "gone", producer_id=7)
    stage.groups.runtime.resign_all()
    stage.start()
    stage.groups.topic_deleted("gone")
    stage.load()
    turns(stage)
    assert committed_offsets(stage, "g") == [("kept", 6)]
    assert groups_left(stage) == {"g"}
    assert_a_restart_reads_the_same(stage)


def test_offsets_of_a_deleted_topic_go_when_the_log_takes_their_tombstones(
    stage: GroupStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when too few replicas are in sync while the topic is deleted."""
    for topic in ("t", "u"):
        commit_all(stage, topic)
    before = end_offsets(stage)

    def refuse(self: Partition) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    with monkeypatch.context() as short:
        short.setattr(Partition, "require_enough_in_sync", refuse)
        stage.groups.topic_deleted("t")
        stage.groups.topic_deleted("u")
        stage.clock.advance(ms=5_000)
        assert end_offsets(stage) == before
        assert stage.clock.pending_timers() <= len(stage.partitions)
    commit(stage, "g7", "t", offset=77)  # of a new topic of that name
    stage.clock.advance(ms=5_000)
    assert groups_left(stage) == {"g7"}
    assert committed_offsets(stage, "g7") == [("t", 77)]
    assert not stage.clock.pending_timers()
    assert_a_restart_reads_the_same(stage)
