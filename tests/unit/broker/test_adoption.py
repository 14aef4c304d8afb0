"""Directories that Apache Kafka wrote, adopted by a broker whose clock stands a day later.

What Kafka described and what it kept on that day was recorded with the directories. Cases that no
recording has are made with metadata logs written by hand.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.adoption_data import KRAFT, METADATA_FOLDER, ZOOKEEPER, recorded, unpack
from tests.support.adoption_story import INTERNAL, STATIC, TOPICS
from tests.support.cleaning import clean_dirtiest
from tests.support.clock import FakeClock
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.kraft_log import (
    KraftLogFolder,
    acl_record,
    broker_config,
    config,
    framed,
    quota_record,
    scram_record,
    topic,
)
from tests.support.metadata import in_loop
from tests.support.raw_batch import batch
from tests.support.stored_columns import read_columns
from tidelog.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.config.description import Source
from tidelog.controller import znodes
from tidelog.controller.metadata_store import SetData
from tidelog.controller.znodes import AdoptionMark
from tidelog.errors import ErrorCode, StartupError
from tidelog.log.cleaner.log_cleaner_manager import LogCleanerManager
from tidelog.protocol.messages.metadata_records import (
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
)
from tidelog.sasl.scram_credential import ScramCredential, ScramMechanism
from tidelog.types import NO_LEADER, Uuid

A, B, HOME, AWAY = (Uuid(bytes([number]) * 16) for number in (1, 2, 8, 9))
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
OLD_MS = NOW_MS - 60 * DAY_MS
# Keys of which Kafka 4 has another default than 3.9, as tidelog has; Kafka 4 has dropped two.
OTHER_DEFAULTS = {"message.timestamp.after.max.ms"}


@asynccontextmanager
async def adopted(directory: Path, later_ms: int, **overrides: str) -> AsyncIterator[HandlerStage]:
    clock = FakeClock(later_ms)
    async with handler_stage(directory, clock, **{**STATIC, **overrides}) as stage:
        yield stage


def keep_house(stage: HandlerStage) -> None:
    """All that retention and the cleaner have to do."""
    logs = stage.broker.logs
    for _ in range(3):
        while clean_dirtiest(LogCleanerManager(logs, stage.clock), stage.clock) is not None:
            pass
        sum(logs.delete_old_segments())


def records_of(stage: HandlerStage, name: str, index: int = 0) -> list[list[object]]:
    log = stage.partition(name, index).log
    rows: list[list[object]] = []
    for segment in log.segments:
        columns = read_columns(Path(segment.path(".log")).read_bytes())
        rows += [
            [row.offset, row.timestamp, *(each and each.decode() for each in (row.key, row.value))]
            for row in columns
            if row.offset >= log.log_start_offset
        ]
    return rows


async def described(stage: HandlerStage, name: str) -> dict[str, list[object]]:
    entries = await stage.broker.dynamic_config.describe_topic(name)
    return {each.name: [each.value, f"{Source(each.source).name}_CONFIG"] for each in entries}


@pytest.mark.parametrize("left", ["all", "the log", "the newest snapshot", "a cut log"])
@pytest.mark.parametrize("name", KRAFT)
@in_loop
async def test_a_day_later_every_record_that_kafka_kept_is_there(
    name: str, left: str, tmp_path: Path
) -> None:
    """Whatever is left of the metadata log: each of these has all topics in it."""
    expected = recorded(name)
    directory = unpack(name, tmp_path)
    leave(directory / METADATA_FOLDER, left)
    async with adopted(directory, expected.later_ms) as stage:
        keep_house(stage)
        found = records_by_folder(stage)
    assert found == expected.kept


def leave(folder: Path, what: str) -> None:
    snapshots, logs = sorted(folder.glob("*.checkpoint")), list(folder.glob("*.log"))
    gone = {"the log": snapshots, "the newest snapshot": [*logs, *snapshots[:-1]]}
    for path in gone.get(what, []):
        path.unlink()
    if what == "a cut log":
        logs[0].write_bytes(logs[0].read_bytes()[:-40])


@pytest.mark.parametrize("name", KRAFT)
@in_loop
async def test_topics_are_described_as_kafka_described_them(name: str, tmp_path: Path) -> None:
    expected = recorded(name)
    async with adopted(unpack(name, tmp_path), expected.later_ms) as stage:
        images = stage.broker.topics.topics
        assert {each: str(image.topic_id) for each, image in images.items()} == expected.topic_ids
        counts = {each: len(image.partitions) for each, image in images.items()}
        assert counts == expected.partition_counts
        for each, theirs in expected.configs.items():
            ours = await described(stage, each)
            keys = ours.keys() & theirs.keys() - OTHER_DEFAULTS
            assert {key: ours[key] for key in keys} == {key: theirs[key] for key in keys}
            assert expected.overrides(each).keys() <= keys


@pytest.mark.parametrize("name", KRAFT)
@in_loop
async def test_a_broker_that_was_alone_has_nothing_to_warn_of(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka 4 leaves the in-sync sets empty when its last broker stops."""
    async with adopted(unpack(name, tmp_path), recorded(name).later_ms):
        pass
    loggers = {"tidelog.controller.adoption", "tidelog.controller.kraft_adoption"}
    assert [each for each in caplog.records if each.name in loggers and each.levelno > 20] == []


@pytest.mark.parametrize("name", KRAFT)
@in_loop
async def test_a_second_start_finds_the_same(name: str, tmp_path: Path) -> None:
    expected = recorded(name)
    directory = unpack(name, tmp_path)
    async with adopted(directory, expected.later_ms) as stage:
        await stage.broker.topics.create("made-here", [[1]], {"retention.ms": "-1"})
        await stage.broker.dynamic_config.alter_topic("wide", lambda _: {"retention.ms": "5"})
        first = {each: image.topic_id for each, image in stage.broker.topics.topics.items()}
    async with adopted(directory, expected.later_ms) as stage:
        second = {each: image.topic_id for each, image in stage.broker.topics.topics.items()}
        assert first == second
        assert stage.broker.dynamic_config.log_config("wide").retention_ms == 5
        assert stage.broker.dynamic_config.log_config("for-ever").retention_ms == -1


@in_loop
async def test_groups_transactions_and_producer_ids_go_on(tmp_path: Path) -> None:
    directory = unpack(KRAFT[0], tmp_path)
    async with adopted(directory, recorded(KRAFT[0]).later_ms) as stage:
        for name in INTERNAL:
            log_config = stage.partition(name).log.config
            assert (log_config.compact, log_config.delete) == (True, False)
    async with adopted(directory, recorded(KRAFT[0]).later_ms) as stage:
        assert await stage.broker.producer_ids.next() == 1000  # Kafka's next one, a start later


@in_loop
async def test_a_directory_from_zookeeper_mode_keeps_every_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = recorded(ZOOKEEPER)
    with caplog.at_level(logging.WARNING):
        async with adopted(unpack(ZOOKEEPER, tmp_path), expected.later_ms) as stage:
            before = records_by_folder(stage)
            keep_house(stage)
            assert records_by_folder(stage) == before
            for name in TOPICS:
                ours = await described(stage, name)
                overrides = {k: v[0] for k, v in ours.items() if v[1] == "DYNAMIC_TOPIC_CONFIG"}
                assert overrides == {
                    "cleanup.policy": "delete",
                    "retention.ms": "-1",
                    "retention.bytes": "-1",
                }
                told = [text for text in caplog.messages if text.startswith(f"{name}: retention")]
                assert len(told) == 1
                assert f"--entity-name {name}" in told[0]
            for name in INTERNAL:
                assert stage.partition(name).log.config.compact
            ids = {each: str(i.topic_id) for each, i in stage.broker.topics.topics.items()}
    assert ids == expected.topic_ids
    for folder, kept in expected.kept.items():
        assert [row for row in kept if row not in before[folder]] == []


def records_by_folder(stage: HandlerStage) -> dict[str, list[list[object]]]:
    return {
        f"{name}-{number}": records_of(stage, name, number)
        for name, story in TOPICS.items()
        for number in range(story.partitions)
    }


# Directories made by hand


class KafkaDirectory:
    """A log directory of node 1 of a cluster in KRaft mode."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = KraftLogFolder(path)
        self.describe(path)

    def describe(self, path: Path, node_id: int = 1, directory_id: Uuid = HOME) -> None:
        path.mkdir(exist_ok=True)
        (path / "meta.properties").write_text(
            f"version=1\nnode.id={node_id}\ncluster.id=kafka\ndirectory.id={directory_id}\n"
        )

    def partition(self, name: str, index: int, topic_id: Uuid, leader_epoch: int = 0) -> Path:
        """Two segments of sixty days ago."""
        folder = self.path / f"{name}-{index}"
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{leader_epoch} 0\n")
        for offset in (0, 1):
            data = batch(
                b"old", base_offset=offset, base_timestamp=OLD_MS, leader_epoch=leader_epoch
            )
            (folder / f"{offset:020d}.log").write_bytes(data)
        return folder


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaDirectory:
    return KafkaDirectory(tmp_path / "data")


def left_by_a_crash(directory: Path) -> Path:
    """What the next process finds, though this one has not ended."""
    return shutil.copytree(directory, directory.with_name("after the crash"))


def count_of(stage: HandlerStage, name: str, index: int = 0) -> int:
    log = stage.partition(name, index).log
    return log.log_end_offset - log.log_start_offset


@in_loop
async def test_an_old_compacted_topic_is_not_emptied(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(*topic("a", A, cleanup_policy="compact"), *topic("b", B))
    for name, topic_id in (("a", A), ("b", B)):
        kafka.partition(name, 0, topic_id)
    async with handler_stage(kafka.path, log_retention_hours="168") as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert (count_of(stage, "a"), count_of(stage, "b")) == (2, 0)


WITHOUT_RETENTION = "topics without a retention.ms of their own: 1"


@in_loop
async def test_without_the_settings_of_kafkas_broker_nothing_is_deleted_by_a_default(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Its server.properties, which are not in the directory, may keep records for ever."""
    kafka.metadata.append(*topic("a", A), *topic("b", B, retention_ms="5"))
    for name, topic_id in (("a", A), ("b", B)):
        kafka.partition(name, 0, topic_id)
    for _ in range(2):
        async with handler_stage(kafka.path) as stage:
            sum(stage.broker.logs.delete_old_segments())
            assert (count_of(stage, "a"), count_of(stage, "b")) == (2, 0)
    told = [text for text in caplog.messages if text.startswith(WITHOUT_RETENTION)]
    assert len(told) == 1
    assert "--entity-type brokers --entity-default" in told[0]
    async with handler_stage(kafka.path, log_retention_hours="168") as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 0
    async with handler_stage(kafka.path) as stage:
        assert stage.broker.config.log_retention_ms == 7 * DAY_MS


@in_loop
async def test_a_retention_that_was_set_meanwhile_stays(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(*topic("a", A))
    kafka.partition("a", 0, A)
    async with handler_stage(kafka.path) as stage:
        path = znodes.config_path("brokers", znodes.DEFAULT_ENTITY)
        data = znodes.encode_config({"log.retention.ms": "77"})
        await stage.broker.store.multi([SetData(path, data)])
    async with handler_stage(kafka.path, log_retention_hours="168") as stage:
        assert stage.broker.config.log_retention_ms == 77


@pytest.mark.parametrize(
    "properties",
    [
        {"process_roles": "broker,controller", "node_id": "1"},
        {"log_retention_minutes": "10080"},
    ],
)
@in_loop
async def test_the_default_holds_for_those_who_start_with_kafkas_settings(
    properties: dict[str, str], kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.metadata.append(*topic("a", A))
    kafka.partition("a", 0, A)
    async with handler_stage(kafka.path, **properties) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 0
    assert WITHOUT_RETENTION not in caplog.text


@in_loop
async def test_compacted_topics_alone_turn_no_retention_off(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(*topic("a", A, cleanup_policy="compact"))
    kafka.partition("a", 0, A)
    async with handler_stage(kafka.path) as stage:
        assert stage.broker.config.log_retention_ms == 7 * DAY_MS


@in_loop
async def test_a_topic_that_is_neither_deleted_nor_compacted_stays_so(
    kafka: KafkaDirectory,
) -> None:
    """Kafka takes an empty cleanup.policy."""
    kafka.metadata.append(*topic("a", A, cleanup_policy=""))
    kafka.partition("a", 0, A)
    async with handler_stage(kafka.path) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 2


@in_loop
async def test_a_retention_set_for_all_brokers_holds(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(*topic("a", A), broker_config("", "log.retention.ms", "-1"))
    kafka.partition("a", 0, A)
    async with handler_stage(kafka.path) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 2


@in_loop
async def test_a_retention_of_all_brokers_deletes_nothing_while_the_cleanup_policy_is_unknown(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's server.properties may say log.cleanup.policy=compact."""
    kafka.metadata.append(
        *topic("a", A),
        *topic("b", B, cleanup_policy="delete"),
        broker_config("", "log.retention.ms", "77"),
    )
    for name, topic_id in (("a", A), ("b", B)):
        kafka.partition(name, 0, topic_id)
    async with handler_stage(kafka.path) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert (count_of(stage, "a"), count_of(stage, "b")) == (2, 0)
        assert stage.broker.config.log_retention_ms == 77
    assert "topics without a cleanup.policy of their own: 1" in caplog.text
    roles = {"process_roles": "broker,controller", "node_id": "1"}
    async with handler_stage(kafka.path, **roles) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 0
        assert stage.broker.config.log_retention_ms == 77


@in_loop
async def test_a_retention_and_a_cleanup_policy_of_all_brokers_hold(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(
        *topic("a", A),
        broker_config("", "log.retention.ms", "77"),
        broker_config("", "log.cleanup.policy", "delete"),
    )
    kafka.partition("a", 0, A)
    async with handler_stage(kafka.path) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 0


@in_loop
async def test_passwords_and_unknown_settings_of_brokers_are_not_copied(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.metadata.append(
        broker_config("1", "listener.name.external.ssl.keystore.password", "secret"),
        broker_config("", "of.the.future", "secret"),
        broker_config("", "log.flush.interval.ms", "9000"),
    )
    async with handler_stage(kafka.path) as stage:
        assert stage.broker.config["log.flush.interval.ms"] == 9000
    assert not any(b"secret" in path.read_bytes() for path in kafka.path.glob("tidelog-*"))
    assert "of.the.future, a setting of brokers, is not adopted" in caplog.messages


@in_loop
async def test_the_directory_of_another_broker_is_refused_before_anything_is_adopted(
    kafka: KafkaDirectory,
) -> None:
    kafka.metadata.append(*topic("a", A))
    with pytest.raises(StartupError, match=r"belongs to broker\.id 1, but this is 7"):
        async with handler_stage(kafka.path, broker_id="7"):
            pass


@in_loop
async def test_leader_epochs_go_on_above_those_of_log_and_metadata(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(*topic("a", A, [[1], [1]], leader_epoch=7, retention_ms="-1"))
    kafka.partition("a", 0, A, leader_epoch=4)
    kafka.partition("a", 1, A, leader_epoch=9)
    async with handler_stage(kafka.path) as stage:
        partitions = stage.broker.topics.topics["a"].partitions
        assert [each.leader_epoch for each in partitions] == [8, 10]


@in_loop
async def test_a_folder_of_a_topic_that_kafka_does_not_know_is_set_aside(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.metadata.append(*topic("a", A), *topic("b", B), framed(RemoveTopicRecord(topic_id=B)))
    kafka.partition("b", 0, B)
    kafka.partition("a", 0, B)  # of a topic that had this name before
    kafka.partition("a", 3, A)
    async with handler_stage(kafka.path) as stage:
        assert sorted(stage.broker.topics.topics) == ["a"]
        assert count_of(stage, "a") == 0
    strays = sorted(path.name.partition(".")[0] for path in kafka.path.glob("*-stray"))
    assert strays == ["a-0", "a-3", "b-0"]
    for path in kafka.path.glob("*-stray"):
        assert (path / f"{0:020d}.log").stat().st_size > 0
    assert sum("its data is kept in" in text for text in caplog.messages) == 3


@in_loop
async def test_partitions_of_other_brokers_have_no_leader_and_no_folder(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.metadata.elect(voters=(1, 2, 3))
    kafka.metadata.append(*topic("a", A, [[1, 2], [2, 3], [2, 1]], retention_ms="-1"))
    kafka.metadata.append(framed(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[2])))
    kafka.metadata.append(*topic("b", B, [[1, 2]], retention_ms="-1"))
    stopped = PartitionChangeRecord(
        partition_id=0, topic_id=B, isr=[], eligible_leader_replicas=[1]
    )
    kafka.metadata.append(framed(stopped))
    kafka.partition("a", 0, A)
    kafka.partition("b", 0, B)
    async with handler_stage(kafka.path) as stage:
        image = stage.broker.topics.topics["a"]
        assert [each.leader for each in image.partitions] == [1, NO_LEADER, NO_LEADER]
        assert image.assignment == [[1], [2, 3], [2]]
        error = stage.broker.replicas.absent_error("a", 1)
        assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not (kafka.path / "a-1").exists()
    assert not (kafka.path / "a-2").exists()
    assert "a: partitions [1, 2] have no leader, because their data is on other brokers" in (
        caplog.messages
    )
    assert any("last records of a-0 are missing" in text for text in caplog.messages)
    assert any("one of 3" in text for text in caplog.messages)


@in_loop
async def test_a_partition_that_only_this_broker_had_is_made_if_it_has_no_folder_yet(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Metadata before 3.7 do not say in which directory it was, so the operator is told."""
    kafka.metadata.append(*topic("a", A, [[1]], directories=[HOME]), *topic("b", B, [[1], [1]]))
    kafka.partition("b", 0, B)
    async with handler_stage(kafka.path) as stage:
        assert [count_of(stage, "a"), count_of(stage, "b"), count_of(stage, "b", 1)] == [0, 2, 0]
    for name, numbers in (("a", [0]), ("b", [1])):
        assert any(
            f"{name}: partitions {numbers} have no folder" in each for each in caplog.messages
        )


@in_loop
async def test_a_directory_that_is_not_named_is_asked_for(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(*topic("a", A, [[1]], directories=[AWAY]))
    with pytest.raises(StartupError, match=r"that log\.dirs do not name: a-0"):
        async with handler_stage(kafka.path):
            pass


@in_loop
async def test_a_metadata_log_that_is_not_understood_keeps_the_broker_from_starting(
    kafka: KafkaDirectory,
) -> None:
    kafka.metadata.append(*topic("a", A), b"\x01\x63\x00")
    folder = kafka.partition("a", 0, A)
    with pytest.raises(StartupError, match=r"type 99 are not known.*move .*__cluster_metadata-0"):
        async with handler_stage(kafka.path):
            pass
    assert folder.exists()
    copy = left_by_a_crash(kafka.path)
    shutil.rmtree(copy / METADATA_FOLDER)
    async with handler_stage(copy) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 2


@pytest.mark.parametrize(
    "record", [config("a", "retention.ms", "weeks"), config("a", "cleanup.policy", "burn")]
)
@in_loop
async def test_a_setting_that_deletes_and_is_not_understood_keeps_the_broker_from_starting(
    kafka: KafkaDirectory, record: bytes
) -> None:
    kafka.metadata.append(*topic("a", A), record)
    with pytest.raises(StartupError, match="decides what is deleted"):
        async with handler_stage(kafka.path):
            pass


@in_loop
async def test_other_settings_that_are_not_understood_are_left_out(kafka: KafkaDirectory) -> None:
    kafka.metadata.append(*topic("a", A, remote_storage_enable="true", retention_ms="-1"))
    async with handler_stage(kafka.path) as stage:
        assert stage.partition("a").log.config.retention_ms == -1


@in_loop
async def test_the_metadata_log_may_lie_in_a_directory_of_its_own(
    kafka: KafkaDirectory, tmp_path: Path
) -> None:
    kafka.metadata.append(*topic("a", A, retention_ms="-1"))
    kafka.partition("a", 0, A)
    apart = tmp_path / "metadata"
    kafka.describe(apart, directory_id=AWAY)
    kafka.metadata.path.rename(apart / METADATA_FOLDER)
    async with handler_stage(kafka.path, metadata_log_dir=str(apart)) as stage:
        assert stage.broker.topics.topics["a"].configs == {"retention.ms": "-1"}


@in_loop
async def test_who_names_the_metadata_directory_later_gets_the_real_settings(
    kafka: KafkaDirectory, tmp_path: Path
) -> None:
    kafka.metadata.append(*topic("a", A, [[1], [1]], retention_ms="77"))
    kafka.partition("a", 0, A)
    apart = tmp_path / "metadata"
    apart.mkdir()
    kafka.metadata.path.rename(apart / METADATA_FOLDER)
    async with handler_stage(kafka.path) as stage:
        assert stage.partition("a").log.config.retention_ms == -1
    async with handler_stage(kafka.path, metadata_log_dir=str(apart)) as stage:
        assert stage.broker.topics.topics["a"].configs == {"retention.ms": "77"}
        assert stage.partition("a").log.config.retention_ms == 77
        assert stage.partition("a", 1).log.log_end_offset == 0


@in_loop
async def test_the_metadata_log_of_another_node_is_refused(
    kafka: KafkaDirectory, tmp_path: Path
) -> None:
    kafka.metadata.append(*topic("a", A))
    apart = tmp_path / "metadata"
    kafka.describe(apart, node_id=2)
    kafka.metadata.path.rename(apart / METADATA_FOLDER)
    with pytest.raises(StartupError, match="belongs to node 2"):
        async with handler_stage(kafka.path, metadata_log_dir=str(apart)):
            pass


@in_loop
async def test_a_metadata_directory_without_a_log_is_refused(
    kafka: KafkaDirectory, tmp_path: Path
) -> None:
    kafka.partition("a", 0, A)
    with pytest.raises(StartupError, match=r"metadata\.log\.dir: there is no __cluster_metadata-0"):
        async with handler_stage(kafka.path, metadata_log_dir=str(tmp_path)):
            pass


@in_loop
async def test_what_kafka_changed_since_the_last_adoption_counts(kafka: KafkaDirectory) -> None:
    """A topic made here stays as long as its folder does; one that Kafka set aside goes."""
    kafka.metadata.append(*topic("a", A, retention_ms="77"))
    kafka.partition("a", 0, A)
    async with handler_stage(kafka.path) as stage:
        await stage.topic("here", retention_ms="5")
        await stage.topic("gone", retention_ms="5")
        await stage.broker.dynamic_config.alter_topic("a", lambda _: {"retention.ms": "88"})
    shutil.rmtree(kafka.path / "gone-0")
    kafka.metadata.append(config("a", "retention.ms", "-1"), *topic("b", B, retention_ms="-1"))
    kafka.partition("b", 0, B)
    async with handler_stage(kafka.path) as stage:
        configs = stage.broker.dynamic_config
        assert sorted(stage.broker.topics.topics) == ["a", "b", "here"]
        assert [configs.log_config(each).retention_ms for each in ("a", "b", "here")] == [-1, -1, 5]
        assert [count_of(stage, each) for each in ("a", "b", "here")] == [2, 2, 0]
        assert stage.broker.dynamic_config.topic_overrides("gone") == {}


@in_loop
async def test_an_adoption_that_was_cut_off_begins_again(
    kafka: KafkaDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.metadata.append(*topic("a", A, retention_ms="-1"))
    kafka.partition("a", 0, A)
    with monkeypatch.context() as patched:
        patched.setattr(
            "tidelog.controller.kraft_adoption.KraftAdoption.finish",
            lambda *_: (_ for _ in ()).throw(StartupError("out of power")),
        )
        with pytest.raises(StartupError, match="out of power"):
            async with handler_stage(kafka.path):
                pass
    copy = left_by_a_crash(kafka.path)
    async with handler_stage(copy) as stage:
        sum(stage.broker.logs.delete_old_segments())
        assert count_of(stage, "a") == 2
    assert list(copy.glob("*-stray")) == []


ANN_READS = AclBinding(ResourceType.TOPIC, "a", "User:ann", AclOperation.READ)
BOB_READS = AclBinding(ResourceType.TOPIC, "a", "User:bob", AclOperation.READ)
BOB_DENIED = BOB_READS._replace(permission=AclPermission.DENY)
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def acls_of(stage: HandlerStage) -> list[AclBinding]:
    authorizer = stage.broker.authorizer
    assert authorizer is not None
    return sorted(each for some in authorizer.acls.matching(AclBindingFilter()) for each in some)


@in_loop
async def test_access_control_lists_users_and_quotas_are_taken_over(kafka: KafkaDirectory) -> None:
    prefixed = ANN_READS._replace(pattern_type=PatternType.PREFIXED)
    kafka.metadata.append(
        framed(acl_record(A, ANN_READS)),
        framed(acl_record(B, prefixed)),
        framed(scram_record("ann", 1)),
        framed(quota_record({"user": "ann"}, "producer_byte_rate", 1024.0)),
    )
    async with handler_stage(kafka.path, **AUTHORIZER) as stage:
        assert acls_of(stage) == [ANN_READS, prefixed]
        config = stage.broker.dynamic_config
        found = config.scram_credential_or_none(ScramMechanism.SCRAM_SHA_256, "ann")
        assert found == ScramCredential(b"salt", b"stored", b"server", 4096)
        assert (await config.describe_user("ann"))["producer_byte_rate"] == "1024"


@in_loop
async def test_kafkas_access_counts_again_and_what_was_denied_here_stays_denied(
    kafka: KafkaDirectory,
) -> None:
    kafka.metadata.append(framed(acl_record(A, ANN_READS)), framed(scram_record("ann", 1)))
    async with handler_stage(kafka.path, **AUTHORIZER) as stage:
        assert stage.broker.authorizer is not None
        other = BOB_READS._replace(resource_name="b")
        await stage.broker.authorizer.acls.create([BOB_READS, BOB_DENIED, other])
    kafka.metadata.append(
        framed(RemoveAccessControlEntryRecord(id=A)),
        framed(RemoveUserScramCredentialRecord(name="ann", mechanism=1)),
        framed(acl_record(B, ANN_READS._replace(operation=AclOperation.WRITE))),
    )
    async with handler_stage(kafka.path, **AUTHORIZER) as stage:
        assert acls_of(stage) == [ANN_READS._replace(operation=AclOperation.WRITE), BOB_DENIED]
        config = stage.broker.dynamic_config
        assert config.scram_credential_or_none(ScramMechanism.SCRAM_SHA_256, "ann") is None


@in_loop
async def test_access_control_lists_without_an_authorizer_are_warned_of(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.metadata.append(framed(acl_record(A, ANN_READS)))
    async with handler_stage(kafka.path):
        assert "no authorizer, so everybody may do everything" in caplog.text


@in_loop
async def test_an_entry_that_cannot_be_kept_is_left_out_only_if_it_allows(
    kafka: KafkaDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    strange = ANN_READS._replace(resource_type=ResourceType.GROUP, resource_name="a/b")
    kafka.metadata.append(framed(acl_record(A, strange)))
    async with handler_stage(kafka.path, **AUTHORIZER) as stage:
        assert acls_of(stage) == []
    assert "left out: ALLOW User:ann" in caplog.text
    kafka.metadata.append(framed(acl_record(B, strange._replace(permission=AclPermission.DENY))))
    with pytest.raises(StartupError, match="allowed that Kafka denies: DENY User:ann"):
        async with handler_stage(kafka.path, **AUTHORIZER):
            pass


@in_loop
async def test_producer_ids_that_kafka_gave_out_are_not_given_out_again(
    kafka: KafkaDirectory,
) -> None:
    kafka.metadata.append(framed(ProducerIdsRecord(broker_id=1, next_producer_id=5000)))
    async with handler_stage(kafka.path):
        pass
    async with handler_stage(kafka.path) as stage:
        assert await stage.broker.producer_ids.next() == 5000


@in_loop
async def test_kafkas_own_files_stay_as_they_are(tmp_path: Path) -> None:
    directory = unpack(KRAFT[1], tmp_path)
    before = {path.name: path.read_bytes() for path in (directory / METADATA_FOLDER).iterdir()}
    meta = (directory / "meta.properties").read_bytes()
    async with adopted(directory, recorded(KRAFT[1]).later_ms):
        pass
    after = {path.name: path.read_bytes() for path in (directory / METADATA_FOLDER).iterdir()}
    assert after == before
    assert (directory / "meta.properties").read_bytes() == meta


@in_loop
async def test_a_new_directory_adopts_nothing_and_never_will(tmp_path: Path) -> None:
    """A folder that a deletion left behind does not bring its topic back."""
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        await stage.broker.topics.delete("t")
        store = stage.broker.store
        assert next(store.subtree(znodes.ADOPTION))[1] == znodes.encode_adoption(
            AdoptionMark("", is_retention_guessed=False)
        )
    (tmp_path / "t-0").mkdir(exist_ok=True)
    async with handler_stage(tmp_path) as stage:
        assert stage.broker.topics.topics == {}
