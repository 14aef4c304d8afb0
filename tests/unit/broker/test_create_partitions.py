"""CreatePartitions: growth only, and assignments that fit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.config_broker import ConfigBroker
from tests.support.metadata import in_loop
from tidelog.broker.handlers.create_partitions import handle
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

LATEST = 3


def more(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    rows = None
    if assignments is not None:
        rows = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows)


async def grow(
    broker: ConfigBroker,
    *topics: CreatePartitionsTopic,
    version: int = LATEST,
    validate_only: bool = False,
    timeout_ms: int = 10_000,
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(
        topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
    )
    response = await handle(broker.context(version), request)
    response.encode(version)
    return response.results


def size(broker: ConfigBroker, name: str = "t") -> int:
    return len(broker.topics.topics[name].partitions)


@pytest.mark.parametrize("version", range(LATEST + 1))
@in_loop
async def test_every_version_adds_partitions(tmp_path: Path, version: int) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    (row,) = await grow(broker, more("t", 4), version=version)
    assert (row.name, row.error_code, row.error_message) == ("t", 0, None)
    assert size(broker) == 4
    await broker.close()


@in_loop
async def test_validate_only_adds_nothing(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    rows = await grow(broker, more("t", 4), more("x", 2), validate_only=True)
    assert [row.error_code for row in rows] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert size(broker) == 1
    await broker.close()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (more("missing", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (more("t", 2), ErrorCode.INVALID_PARTITIONS),
        (more("t", 1), ErrorCode.INVALID_PARTITIONS),
        (more("t", 0), ErrorCode.INVALID_PARTITIONS),
        (more("t", -1), ErrorCode.INVALID_PARTITIONS),
        (more("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [[0], [0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [[5]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [[0, 0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (more("t", 3, [[0]]), ErrorCode.NONE),
    ],
)
@in_loop
async def test_checks(tmp_path: Path, wanted: CreatePartitionsTopic, expected: ErrorCode) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.topics.create("t", [[0], [0]])
    (row,) = await grow(broker, wanted)
    assert row.error_code == expected
    assert size(broker) == (3 if expected is ErrorCode.NONE else 2)
    await broker.close()


@in_loop
async def test_a_topic_named_twice_is_refused_once(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    await broker.create_topic("u")
    rows = await grow(broker, more("t", 2), more("u", 2), more("t", 3))
    assert [(row.name, row.error_code) for row in rows] == [("t", 42), ("u", 0)]
    assert (size(broker), size(broker, "u")) == (1, 2)
    await broker.close()


@in_loop
async def test_of_two_requests_at_once_for_the_same_count_one_is_refused(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    (one,), (two,) = await asyncio.gather(grow(broker, more("t", 3)), grow(broker, more("t", 3)))
    assert [one.error_code, two.error_code] == [0, ErrorCode.INVALID_PARTITIONS]
    assert size(broker) == 3
    await broker.close()


@in_loop
async def test_a_timeout_of_0_starts_the_change_and_says_so(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    (row,) = await grow(broker, more("t", 2), timeout_ms=0)
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    await broker.topics.add_partitions("t", 3, [[0]])
    assert size(broker) == 3
    await broker.close()
