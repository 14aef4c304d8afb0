"""CreateTopics: checks and codes as Kafka 3.9 answers them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.config_broker import ConfigBroker
from tests.support.loop_turns import counted_slices
from tests.support.metadata import in_loop, no_space
from tidelog.broker.handlers.create_topics import handle
from tidelog.config.definition import ConfigError
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from tidelog.types import ZERO_UUID

LATEST = 7
DYNAMIC_TOPIC, DEFAULT = 1, 5


def topic(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    *,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=p, broker_ids=ids)
            for p, ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
    )


async def create(
    broker: ConfigBroker,
    *topics: CreatableTopic,
    version: int = LATEST,
    validate_only: bool = False,
    timeout_ms: int = 10_000,
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(
        topics=list(topics), validate_only=validate_only, timeout_ms=timeout_ms
    )
    response = await handle(broker.context(version), request)
    response.encode(version)
    return response.topics


async def code(broker: ConfigBroker, wanted: CreatableTopic, **options: bool) -> int:
    (row,) = await create(broker, wanted, **options)
    return row.error_code


@in_loop
async def test_a_topic_is_made_and_described(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    (row,) = await create(broker, topic("t", 3, 1, configs={"retention.ms": " 5000 "}))
    image = broker.topics.topics["t"]
    assert (row.error_code, row.error_message) == (0, None)
    assert (row.num_partitions, row.replication_factor) == (3, 1)
    assert row.topic_id == image.topic_id != ZERO_UUID
    assert len(image.partitions) == 3
    assert image.configs == {"retention.ms": " 5000 "}
    await broker.close()


@in_loop
async def test_the_answer_has_the_whole_configuration_with_sources(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    (row,) = await create(broker, topic("t", 1, 1, configs={"retention.ms": "5000"}))
    assert row.configs is not None
    configs = {entry.name: entry for entry in row.configs}
    assert len(configs) > 25
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
        "5000",
        DYNAMIC_TOPIC,
    )
    assert configs["segment.bytes"].value == "1073741824"
    assert configs["segment.bytes"].config_source == DEFAULT
    assert not configs["segment.bytes"].read_only
    await broker.close()


@pytest.mark.parametrize("version", range(LATEST + 1))
@in_loop
async def test_every_version_makes_a_topic(tmp_path: Path, version: int) -> None:
    broker = ConfigBroker(tmp_path)
    (row,) = await create(broker, topic("t", 1, 1), version=version)
    assert row.error_code == 0
    assert "t" in broker.topics.topics
    await broker.close()


@in_loop
async def test_minus_one_means_the_brokers_defaults(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    (row,) = await create(broker, topic("t"))
    assert (row.num_partitions, row.replication_factor) == (1, 1)
    await broker.close()


@in_loop
async def test_validate_only_answers_the_same_and_makes_nothing(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    (row,) = await create(broker, topic("t", 3, 1), validate_only=True)
    assert (row.error_code, row.num_partitions) == (0, 3)
    assert row.topic_id != ZERO_UUID
    assert row.configs
    assert broker.topics.topics == {}
    assert await code(broker, topic("t t"), validate_only=True) == 17
    await broker.close()


@in_loop
async def test_each_topic_is_answered_on_its_own(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    rows = await create(broker, topic("good"), topic("b d"), topic("fine"))
    assert [(row.name, row.error_code) for row in rows] == [("good", 0), ("b d", 17), ("fine", 0)]
    assert sorted(broker.topics.topics) == ["fine", "good"]
    await broker.close()


@in_loop
async def test_a_failed_topic_has_a_message_and_no_description(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    (row,) = await create(broker, topic("t", 1, 3))
    assert row.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert row.error_message == "Replication factor: 3 larger than available brokers: 1."
    assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, [])
    assert row.topic_id == ZERO_UUID
    await broker.close()


@in_loop
async def test_a_topic_named_twice_is_refused_once_and_not_made(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    rows = await create(broker, topic("t"), topic("u"), topic("t"))
    assert [(row.name, row.error_code) for row in rows] == [("t", 42), ("u", 0)]
    assert list(broker.topics.topics) == ["u"]
    await broker.close()


@in_loop
async def test_names(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    assert await code(broker, topic("")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await code(broker, topic("a.b")) == ErrorCode.NONE
    assert await code(broker, topic("a_b")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await code(broker, topic("a.b")) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert await code(broker, topic("__consumer_offsets")) == ErrorCode.NONE
    assert await code(broker, topic("__cluster_metadata")) == ErrorCode.INVALID_REQUEST
    await broker.close()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -1, assignments={0: [0]}), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, assignments={0: [0]}), ErrorCode.INVALID_REQUEST),
        (topic("t", assignments={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: [0], 1: [0]}), ErrorCode.NONE),
        (topic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": ""}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"cleanup.policy": ""}), ErrorCode.NONE),
        (topic("t", 0, 0, configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (topic("t t", 0, 0, configs={"retention.ms": None}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
@in_loop
async def test_checks_and_their_order(
    tmp_path: Path, wanted: CreatableTopic, expected: ErrorCode
) -> None:
    broker = ConfigBroker(tmp_path)
    assert await code(broker, wanted) == expected
    assert ("t" in broker.topics.topics) == (expected is ErrorCode.NONE)
    await broker.close()


@in_loop
async def test_a_request_for_very_many_partitions_is_refused_whole(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    rows = await create(broker, topic("t", 2**31 - 1, 1), topic("u", 1, 1))
    assert [row.error_code for row in rows] == [ErrorCode.POLICY_VIOLATION] * 2
    assert broker.topics.topics == {}
    await broker.close()


@in_loop
async def test_a_timeout_of_0_starts_the_creation_and_says_so(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    rows = await create(broker, topic("t"), topic("b d"), timeout_ms=0)
    assert [row.error_code for row in rows] == [ErrorCode.REQUEST_TIMED_OUT, 17]
    await broker.topics.auto_create("t")
    assert list(broker.topics.topics) == ["t"]
    await broker.close()


@in_loop
async def test_a_full_disk_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = ConfigBroker(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        assert await code(broker, topic("t")) == ErrorCode.KAFKA_STORAGE_ERROR
    assert await code(broker, topic("t")) == ErrorCode.NONE
    await broker.close()


@in_loop
async def test_all_topics_of_a_request_share_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = ConfigBroker(tmp_path)
    broker.slices = broker.topics._slices = counted_slices(100_000)
    syncs: list[int] = []
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    rows = await create(broker, *(topic(f"t{n}") for n in range(50)))
    assert {row.error_code for row in rows} == {0}
    assert len(syncs) == 1
    await broker.close()


@pytest.mark.parametrize("name", ["remote.storage.enable", "remote.log.copy.disable"])
@in_loop
async def test_a_setting_that_would_have_no_effect_makes_no_topic(
    tmp_path: Path, name: str
) -> None:
    broker = ConfigBroker(tmp_path)
    wanted = topic("t", 1, 1, configs={name: "true"})
    assert await code(broker, wanted) == ErrorCode.INVALID_CONFIG
    assert "t" not in broker.topics.topics
    await create(broker, topic("t", 1, 1))
    with pytest.raises(ConfigError, match="no tiered storage"):
        await broker.dynamic_config.alter_topic("t", lambda before: {name: "true"})
    await broker.close()
