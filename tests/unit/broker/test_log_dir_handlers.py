"""AlterReplicaLogDirs, and what clients are told when a log directory fails."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.batches import simple_batch
from tests.support.handlers import HandlerStage, at_once, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.handlers import (
    alter_replica_log_dirs,
    describe_log_dirs,
    describe_topic_partitions,
    list_offsets,
    metadata,
)
from tidelog.broker.log_dir_failure_handler import LogDirFailureHandler
from tidelog.errors import ErrorCode, StartupError
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tidelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.replication.partition import Partition

THROTTLE = {"replica_alter_log_dirs_io_max_bytes_per_second": "1"}


@asynccontextmanager
async def two_directories(tmp_path: Path, **overrides: str) -> AsyncIterator[HandlerStage]:
    """Topic t: partition 0 in a, 1 in b."""
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with handler_stage(tmp_path, log_dirs=dirs, **overrides) as stage:
        await stage.topic("t", 2)
        for index in range(2):
            stage.partition("t", index).append(memoryview(simple_batch(3)), 11)
        yield stage


def alter(stage: HandlerStage, path: Path | str, topic: str = "t", index: int = 0) -> int:
    row = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[row])])
    (result,) = alter_replica_log_dirs.handle(stage.context(2), request).results
    (partition,) = result.partitions
    assert (result.topic_name, partition.partition_index) == (topic, index)
    return partition.error_code


def described(stage: HandlerStage) -> dict[str, DescribeLogDirsResult]:
    answer = at_once(
        describe_log_dirs.handle(stage.context(4), DescribeLogDirsRequest(topics=None))
    )
    return {Path(result.log_dir).name: result for result in answer.results}


def fail(stage: HandlerStage, directory: Path) -> list[str]:
    """The directory fails; what the broker says if it cannot go on."""
    halted: list[str] = []
    broker = stage.broker
    handler = LogDirFailureHandler(
        broker.logs, broker.replicas, broker.coordinators, broker.logs.directories[0], halted.append
    )
    broker.logs.failures.listener = handler.handle
    broker.logs.failures.report(str(directory), "write", OSError(errno.EIO, "dead"))
    return halted


class TestAlterReplicaLogDirs:
    @in_loop
    async def test_a_replica_is_in_both_until_it_has_moved(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path, **THROTTLE) as stage:
            assert alter(stage, tmp_path / "b") == ErrorCode.NONE
            rows = {
                name: [
                    (row.partition_index, row.is_future_key, row.offset_lag)
                    for topic in result.topics
                    for row in topic.partitions
                ]
                for name, result in described(stage).items()
            }
            assert rows == {"a": [(0, False, 0)], "b": [(0, True, 3), (1, False, 0)]}

    @in_loop
    async def test_what_cannot_be_is_refused_in_kafkas_words(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            assert alter(stage, "/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
            assert alter(stage, tmp_path / "b", "u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert alter(stage, tmp_path / "b", "t", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            long = "t" * 230
            assert alter(stage, tmp_path / "b", long) == ErrorCode.INVALID_TOPIC_EXCEPTION
            fail(stage, tmp_path / "b")
            assert alter(stage, tmp_path / "b") == ErrorCode.KAFKA_STORAGE_ERROR
            assert alter(stage, tmp_path / "a", "t", 1) == ErrorCode.KAFKA_STORAGE_ERROR
            assert alter(stage, tmp_path / "a") == ErrorCode.NONE

    @in_loop
    async def test_a_partition_yet_to_come_remembers_its_directory(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            for index in range(3):
                code = alter(stage, tmp_path / "b", "new", index)
                assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await stage.topic("new", 3)
            homes = [stage.partition("new", index).log.directory.parent for index in range(3)]
            assert homes == [tmp_path / "b"] * 3

    @in_loop
    async def test_named_twice_the_last_one_holds(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path, **THROTTLE) as stage:
            row = AlterReplicaLogDirTopic(name="t", partitions=[0])
            dirs = [
                AlterReplicaLogDir(path=str(tmp_path / name), topics=[row]) for name in ("b", "a")
            ]
            request = AlterReplicaLogDirsRequest(dirs=dirs)
            (result,) = alter_replica_log_dirs.handle(stage.context(1), request).results
            assert [row.error_code for row in result.partitions] == [0]
            assert next(iter(stage.broker.logs.futures), None) is None


class TestAFailedDirectory:
    @in_loop
    async def test_its_partitions_answer_with_storage_errors_and_the_others_go_on(
        self, tmp_path: Path
    ) -> None:
        async with two_directories(tmp_path) as stage:
            assert fail(stage, tmp_path / "b") == []
            rows = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(2)]
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=rows)])
            answer = list_offsets.handle(stage.context(5), request)
            assert isinstance(answer, ListOffsetsResponse)
            codes = [row.error_code for row in answer.topics[0].partitions]
            assert codes == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]

    @in_loop
    async def test_describe_log_dirs_says_so(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            fail(stage, tmp_path / "b")
            found = described(stage)
            assert found["a"].error_code == ErrorCode.NONE
            assert found["b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (found["b"].topics, found["b"].total_bytes) == ([], -1)

    @in_loop
    async def test_its_partitions_have_no_leader(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            fail(stage, tmp_path / "b")
            by_name = MetadataRequestTopic(name="t")
            by_id = MetadataRequestTopic(
                name=None, topic_id=stage.broker.topics.topics["t"].topic_id
            )
            for topics in ([by_name], [by_id], None):
                answer = metadata.handle(stage.context(12), MetadataRequest(topics=topics))
                good, bad = answer.topics[0].partitions  # type: ignore[union-attr]
                assert (good.error_code, good.leader_id, good.offline_replicas) == (0, 0, [])
                assert bad.error_code == ErrorCode.LEADER_NOT_AVAILABLE
                assert (bad.leader_id, bad.offline_replicas, bad.isr_nodes) == (-1, [0], [0])
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name="t")], response_partition_limit=10
            )
            described_rows = await describe_topic_partitions.handle(stage.context(0), request)
            first, second = described_rows.topics[0].partitions
            assert (first.leader_id, second.leader_id, second.offline_replicas) == (0, -1, [0])

    @in_loop
    async def test_new_partitions_go_to_the_others(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            fail(stage, tmp_path / "b")
            await stage.topic("new", 3)
            for index in range(3):
                assert stage.partition("new", index).log.directory.parent == tmp_path / "a"

    @in_loop
    async def test_coordinators_of_its_partitions_resign(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path, offsets_topic_num_partitions="4") as stage:
            await stage.broker.topics.auto_create("__consumer_offsets")
            fail(stage, tmp_path / "b")
            serving = {shard.index for shard in stage.broker.groups.runtime.active_shards()}
            here = {
                index
                for index in range(4)
                if stage.broker.replicas.get("__consumer_offsets", index) is not None
            }
            assert serving == here
            assert len(here) == 2

    @in_loop
    async def test_a_topic_of_it_can_be_deleted_and_made_anew(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            fail(stage, tmp_path / "b")
            await stage.broker.topics.delete("t")
            await stage.topic("t", 2)
            assert stage.partition("t", 1).log.directory.parent == tmp_path / "a"

    @in_loop
    async def test_without_the_metadata_the_broker_stops(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            (message,) = fail(stage, tmp_path / "a")
            assert "which holds the metadata" in message

    @in_loop
    async def test_without_any_directory_the_broker_stops(self, tmp_path: Path) -> None:
        async with two_directories(tmp_path) as stage:
            assert fail(stage, tmp_path / "b") == []
            (message,) = fail(stage, tmp_path / "a")
            assert "all log directories have failed" in message

    @in_loop
    async def test_a_metadata_store_that_cannot_write_is_a_failed_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tests.support.failing_disk import FailingDisk
        from tidelog.errors import KafkaError

        async with two_directories(tmp_path) as stage:
            with monkeypatch.context() as patch:
                FailingDisk(tmp_path / "a", patch).fail(errno.EIO, "fdatasync", "ftruncate")
                with pytest.raises(KafkaError):
                    await stage.topic("new")
            assert str(tmp_path / "a") in stage.broker.logs.failures


@in_loop
async def test_one_partition_that_cannot_go_offline_keeps_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_directories(tmp_path) as stage:
        await stage.topic("u", 3)
        retire = Partition.retire
        failures = [KeyError("a bug")]

        def fail_at_first(partition: Partition, code: ErrorCode) -> None:
            if failures:
                raise failures.pop()
            retire(partition, code)

        monkeypatch.setattr(Partition, "retire", fail_at_first)
        lost = stage.broker.logs.logs_inside(stage.broker.logs.directories[1])
        assert len(lost) > 1
        fail(stage, tmp_path / "b")
        assert [place for place in lost if stage.broker.replicas.get(*place) is not None] == []
        assert not stage.broker.logs.directories.is_online(stage.broker.logs.directories[1])


class TestAtTheStart:
    @in_loop
    async def test_the_first_directory_must_be_there(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("no directory")
        with pytest.raises(StartupError, match="a, which holds the metadata, has failed"):
            async with two_directories(tmp_path):
                pass

    @in_loop
    async def test_partitions_of_a_directory_that_is_gone_are_not_made_anew(
        self, tmp_path: Path
    ) -> None:
        async with two_directories(tmp_path):
            pass
        (tmp_path / "b").rename(tmp_path / "away")
        (tmp_path / "b").write_text("no directory")
        dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
        async with handler_stage(tmp_path, log_dirs=dirs) as stage:
            assert stage.broker.replicas.get("t", 1) is None
            code = stage.broker.replicas.absent_error("t", 1)
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert stage.partition("t", 0).log.log_end_offset == 3
            assert described(stage)["b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        (tmp_path / "b").unlink()
        (tmp_path / "away").rename(tmp_path / "b")
        async with handler_stage(tmp_path, log_dirs=dirs) as stage:
            assert stage.partition("t", 1).log.log_end_offset == 3
