from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.group_scenario import show
from tests.support.group_stage import GroupStage
from tests.support.new_offsets import new_offset
from tests.support.pending import unexpected
from tidelog.coordinator.group.shard import GROUP_RECORD_TYPES, GroupShard
from tidelog.coordinator.loading import RECORDS_PER_TURN, PartitionLoading
from tidelog.coordinator.stored_record import CoordinatorRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.log_validator import AppendOrigin
from tidelog.pending import Pending
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch

GROUP = "g"
PRODUCER = 4000


def commit(stage: GroupStage, offset: int, group_id: str = GROUP) -> Pending[ErrorCode] | None:
    return stage.groups.commit_offsets(
        group_id,
        [new_offset("t", 0, offset, -1, "", stage.clock.time_ms())],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        knows_member_epochs=False,
    )


def committed(stage: GroupStage, group_id: str = GROUP) -> int | None:
    offsets = stage.groups.offsets_of(group_id)
    found = None if offsets is None else offsets.get("t", 0)
    return None if found is None else found.offset


def code_of(stage: GroupStage, group_id: str = GROUP) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        stage.groups.offsets_of(group_id)
    return refused.value.code


def other_partitions_group(stage: GroupStage) -> str:
    """A group that another partition than GROUP's looks after."""
    names = (f"other-{n}" for n in range(100))
    runtime = stage.groups.runtime
    return next(name for name in names if runtime.shard_for(name) is not shard_of(stage))


def shard_of(stage: GroupStage) -> GroupShard:
    return stage.groups.runtime.shard_for(GROUP)


def write_raw(stage: GroupStage, data: bytearray) -> None:
    partition = stage.partitions[shard_of(stage).index]
    partition.log.append_as_leader(memoryview(data), 0, origin=AppendOrigin.COORDINATOR)


class CountingShard:
    def __init__(self, shard: GroupShard) -> None:
        self.replayed = 0
        self._shard = shard

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        self.replayed += 1
        self._shard.replay(record, offset, producer_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)


class TestLoading:
    def test_while_it_loads_it_says_so(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        stage.start()
        assert stage.groups.runtime.is_loading
        assert code_of(stage) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        stage.load()
        assert committed(stage) == 5

    def test_an_empty_partition_serves_at_once(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        assert not stage.groups.runtime.is_loading
        assert committed(stage) is None

    def test_a_turn_replays_a_bounded_number_of_records(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        for offset in range(2 * RECORDS_PER_TURN + 10):
            commit(stage, offset)
        index = shard_of(stage).index
        shard = CountingShard(GroupShard(index, stage.clock))
        loading = PartitionLoading(stage.partitions[index].log, shard, GROUP_RECORD_TYPES, 1 << 20)
        replayed = []
        while not loading.step():
            replayed.append(shard.replayed)
        assert max(b - a for a, b in pairwise([0, *replayed])) <= RECORDS_PER_TURN
        assert shard.replayed == loading.record_count == 2 * RECORDS_PER_TURN + 10

    def test_a_long_log_is_read_in_slices(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        for offset in range(100):
            commit(stage, offset)
        index = shard_of(stage).index
        shard = GroupShard(index, stage.clock)
        loading = PartitionLoading(
            stage.partitions[index].log, shard, GROUP_RECORD_TYPES, slice_bytes=1000
        )
        steps = 1
        while not loading.step():
            steps += 1
        assert steps > 10
        assert loading.record_count == 100
        assert [entry[2].offset for entry in shard.offsets[GROUP]] == [99]

    def test_compressed_records_are_read(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path, {"offsets.topic.compression.codec": str(int(Codec.GZIP))})
        commit(stage, 7)
        stage.restart()
        assert committed(stage) == 7

    def test_records_of_unknown_types_are_skipped(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        write_raw(stage, batch_of([(b"\0\x63new", b"\0\0", (), 1), (b"\0\x63", None, (), 1)]))
        commit(stage, 6)
        stage.restart()
        assert committed(stage) == 6
        assert caplog.text.count("unknown type") == 1

    def test_a_partition_that_cannot_be_read_is_not_coordinated(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        write_raw(stage, batch_of([(b"\0\1\0\x50cut", b"", (), 1)]))
        stage.restart()
        assert code_of(stage) is ErrorCode.NOT_COORDINATOR
        others = [f"other-{n}" for n in range(8)]
        served = [name for name in others if commit_or_code(stage, name) is ErrorCode.NONE]
        assert served, "the other partition serves"

    def test_a_bug_met_while_loading_holds_up_no_other_partition(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        other = other_partitions_group(stage)
        commit(stage, 6, other)
        replay = GroupShard.replay
        broken = shard_of(stage).index

        def replay_with_a_bug(self: GroupShard, record: Any, offset: int, producer: int) -> None:
            if self.index == broken:
                raise LookupError("nobody expected this")
            replay(self, record, offset, producer)

        with monkeypatch.context() as patch:
            patch.setattr(GroupShard, "replay", replay_with_a_bug)
            stage.start()
            # The loop logs it with its traceback and goes on.
            with pytest.raises(LookupError):
                stage.load()
            stage.load()
            assert committed(stage, other) == 6
            assert code_of(stage) is ErrorCode.NOT_COORDINATOR
            assert not stage.groups.runtime.is_loading
            for pause_ms in (1000, 2000, 4000):
                stage.clock.advance(ms=pause_ms - 1)
                assert not stage.groups.runtime.is_loading
                with pytest.raises(LookupError):
                    stage.clock.advance(ms=1)
        stage.clock.advance(ms=8000)
        assert committed(stage) == 5

    def test_a_bug_met_when_a_partition_is_loaded_leaves_no_half_of_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        stage.start()
        runtime = stage.groups.runtime
        good = runtime._on_loaded
        unloaded: list[GroupShard] = []

        def bad(shard: GroupShard) -> None:
            raise LookupError("nobody expected this")

        with monkeypatch.context() as patch:
            patch.setattr(runtime, "_on_loaded", bad)
            patch.setattr(runtime, "_on_unloaded", unloaded.append)
            with pytest.raises(LookupError):
                stage.load()
            assert code_of(stage) is ErrorCode.NOT_COORDINATOR
            assert len(unloaded) == 1
        assert runtime._on_loaded == good
        stage.clock.advance(ms=1000)
        assert committed(stage) == 5

    def test_a_disk_that_fails_for_a_while_is_read_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        stage.start()

        def fail(self: PartitionLoading) -> bool:
            raise OSError("input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(PartitionLoading, "step", fail)
            stage.load()
            assert code_of(stage) is ErrorCode.NOT_COORDINATOR
        stage.clock.advance(ms=1000)
        assert committed(stage) == 5

    def test_a_partition_that_has_gone_is_not_loaded_again(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        write_raw(stage, batch_of([(b"\0\1\0\x50cut", b"", (), 1)]))
        stage.restart()
        assert code_of(stage) is ErrorCode.NOT_COORDINATOR
        stage.groups.runtime.resign_all()
        stage.clock.advance(ms=120_000)
        assert not stage.groups.runtime.is_loading
        assert stage.clock.pending_timers() == 0

    def test_a_partition_given_up_while_it_loads_stays_away(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        stage.start()
        stage.groups.runtime.resign_all()
        stage.load()
        assert code_of(stage) is ErrorCode.NOT_COORDINATOR


def commit_or_code(stage: GroupStage, group_id: str) -> ErrorCode:
    try:
        commit(stage, 1, group_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


class TestWriting:
    @pytest.mark.parametrize(
        ("partitions", "metadata_bytes", "code"),
        [
            (60, 30_000, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),  # above message.max.bytes
            (1, 40_000, ErrorCode.UNKNOWN_SERVER_ERROR),  # no string of the record is so long
        ],
    )
    def test_nothing_changes_when_the_records_cannot_be_written(
        self, tmp_path: Path, partitions: int, metadata_bytes: int, code: ErrorCode
    ) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        before = list(show(stage, GROUP))
        metadata = "x" * metadata_bytes
        with pytest.raises(KafkaError) as refused:
            stage.groups.commit_offsets(
                GROUP,
                [new_offset("t", index, 9, -1, metadata) for index in range(partitions)],
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                knows_member_epochs=False,
            )
        assert refused.value.code is code
        assert list(show(stage, GROUP)) == before

    def test_answer_waits_for_the_flush_that_flush_messages_demands(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path, flush_messages=1)
        outcomes: list[ErrorCode] = []
        flushed = commit(stage, 5)
        assert flushed is not None
        flushed.then(outcomes.append, unexpected)
        assert outcomes == []
        stage.flusher.end()
        assert outcomes == [ErrorCode.NONE]
        log = stage.partitions[shard_of(stage).index].log
        assert log.high_watermark == log.log_end_offset

    def test_after_a_failed_flush_the_partition_is_not_coordinated(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path, flush_messages=1)
        outcomes: list[ErrorCode] = []
        flushed = commit(stage, 5)
        assert flushed is not None
        flushed.then(outcomes.append, unexpected)
        stage.flusher.end(OSError("disk"))
        assert outcomes == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert code_of(stage) is ErrorCode.NOT_COORDINATOR

    def test_commits_carry_sequence_zero_and_no_producer(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        log = stage.partitions[shard_of(stage).index].log
        data = log.read(0, 10_000, up_to_offset=1, min_one_batch=True).records
        assert data is not None
        batch = data.read()
        assert int.from_bytes(batch[43:51], "big", signed=True) == -1
        assert int.from_bytes(batch[53:57], "big", signed=True) == 0


class TestTransactions:
    """Offsets of transactions, as Kafka's directories may hold them."""

    def stage_offset(self, stage: GroupStage, offset: int) -> None:
        stage.groups.commit_transactional_offsets(
            GROUP,
            [new_offset("t", 0, offset, -1, "", 1)],
            producer_id=PRODUCER,
            producer_epoch=0,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
        )

    def end(self, stage: GroupStage, kind: ControlType) -> None:
        marker = EndTransactionMarker(kind, 0)
        data = marker_batch(marker, producer_id=PRODUCER, producer_epoch=0, timestamp=1)
        write_raw(stage, data)

    @pytest.mark.parametrize(
        ("kind", "expected"), [(ControlType.COMMIT, 9), (ControlType.ABORT, 5)]
    )
    def test_markers_decide_on_load(self, tmp_path: Path, kind: ControlType, expected: int) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        self.stage_offset(stage, 9)
        assert committed(stage) == 5
        self.end(stage, kind)
        stage.restart()
        assert committed(stage) == expected

    def test_an_open_transaction_leaves_the_offset_unstable(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        commit(stage, 5)
        self.stage_offset(stage, 9)
        stage.restart()
        offsets = stage.groups.offsets_of(GROUP)
        assert offsets is not None
        assert offsets.is_unstable("t", 0)
        assert committed(stage) == 5
        shard_of(stage).replay_marker(PRODUCER, committed=True)
        assert committed(stage) == 9
        assert not offsets.is_unstable("t", 0)

    def test_a_group_with_nothing_but_an_aborted_offset_is_gone(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        self.stage_offset(stage, 9)
        assert stage.groups.group_or_none(GROUP) is not None
        shard_of(stage).replay_marker(PRODUCER, committed=False)
        assert stage.groups.group_or_none(GROUP) is None
