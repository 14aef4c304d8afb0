"""DeleteTopics: by name and by id, and what Kafka refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.config_broker import ConfigBroker
from tests.support.metadata import in_loop
from tidelog.broker.handlers.delete_topics import handle
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tidelog.types import ZERO_UUID, Uuid

LATEST = 6
OTHER_ID = Uuid.parse("qaAWHYOVSP-HRC6iO0I1wA")


async def by_names(
    broker: ConfigBroker, *names: str, version: int = 5, timeout_ms: int = 10_000
) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    response = await handle(broker.context(version), request)
    response.encode(version)
    return response.responses


async def by_states(
    broker: ConfigBroker, *states: tuple[str | None, Uuid]
) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states],
        timeout_ms=10_000,
    )
    response = await handle(broker.context(LATEST), request)
    response.encode(LATEST)
    return response.responses


def codes(rows: list[DeletableTopicResult]) -> list[tuple[str | None, int]]:
    return [(row.name, row.error_code) for row in rows]


@pytest.mark.parametrize("version", range(LATEST))
@in_loop
async def test_every_version_deletes_by_name(tmp_path: Path, version: int) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    rows = await by_names(broker, "t", "missing", version=version)
    assert sorted(codes(rows)) == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", ErrorCode.NONE),
    ]
    assert broker.topics.topics == {}
    await broker.close()


@in_loop
async def test_deletion_by_id_and_by_name(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    await broker.create_topic("u")
    ids = {name: image.topic_id for name, image in broker.topics.topics.items()}
    rows = await by_states(broker, (None, ids["t"]), ("u", ZERO_UUID), (None, OTHER_ID))
    found = {row.topic_id: (row.name, row.error_code) for row in rows}
    assert found == {
        ids["t"]: ("t", 0),
        ids["u"]: ("u", 0),
        OTHER_ID: (None, ErrorCode.UNKNOWN_TOPIC_ID),
    }
    assert broker.topics.topics == {}
    await broker.close()


@in_loop
async def test_deletion_by_id_spares_a_topic_made_under_the_name_meanwhile(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    first_id = broker.topics.topics["t"].topic_id
    deletion = broker.topics.delete("t")
    creation = broker.create_topic("t")
    _, _, rows = await asyncio.gather(deletion, creation, by_states(broker, (None, first_id)))
    assert [(row.topic_id, row.error_code) for row in rows] == [
        (first_id, ErrorCode.UNKNOWN_TOPIC_ID)
    ]
    assert broker.topics.topics["t"].topic_id != first_id
    await broker.close()


@in_loop
async def test_deletion_by_name_tells_the_id_of_what_it_deleted(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    deletion = broker.topics.delete("t")
    creation = broker.topics.create("t", [[0]])
    _, second, rows = await asyncio.gather(deletion, creation, by_states(broker, ("t", ZERO_UUID)))
    assert [(row.topic_id, row.error_code) for row in rows] == [(second.topic_id, 0)]
    await broker.close()


@in_loop
async def test_name_and_id_together_or_neither_are_refused(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    rows = await by_states(broker, ("t", broker.topics.topics["t"].topic_id), (None, ZERO_UUID))
    assert codes(rows) == [("t", ErrorCode.INVALID_REQUEST), (None, ErrorCode.INVALID_REQUEST)]
    assert "t" in broker.topics.topics
    await broker.close()


@in_loop
async def test_a_topic_given_twice_stays(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    await broker.create_topic("u")
    topic_id = broker.topics.topics["u"].topic_id
    assert codes(await by_names(broker, "t", "t")) == [("t", ErrorCode.INVALID_REQUEST)]
    rows = await by_states(broker, (None, topic_id), (None, topic_id))
    assert codes(rows) == [(None, ErrorCode.INVALID_REQUEST)]
    rows = await by_states(broker, (None, topic_id), ("u", ZERO_UUID))
    assert codes(rows) == [("u", ErrorCode.INVALID_REQUEST)]
    assert rows[0].topic_id == topic_id
    assert sorted(broker.topics.topics) == ["t", "u"]
    await broker.close()


@in_loop
async def test_a_name_given_twice_does_not_keep_the_id_from_being_deleted(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    topic_id = broker.topics.topics["t"].topic_id
    rows = await by_states(broker, (None, topic_id), ("t", ZERO_UUID), ("t", ZERO_UUID))
    assert codes(rows) == [("t", ErrorCode.INVALID_REQUEST), ("t", 0)]
    assert "t" not in broker.topics.topics
    await broker.close()


@pytest.mark.parametrize(
    ("version", "expected"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
@in_loop
async def test_deletion_can_be_disabled(tmp_path: Path, version: int, expected: ErrorCode) -> None:
    broker = ConfigBroker(tmp_path, {"delete.topic.enable": "false"})
    await broker.create_topic("t")
    assert codes(await by_names(broker, "t", "x", version=version)) == [
        ("t", expected),
        ("x", expected),
    ]
    assert "t" in broker.topics.topics
    await broker.close()


@in_loop
async def test_a_timeout_of_0_starts_the_deletion_and_says_so(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    rows = await by_names(broker, "t", timeout_ms=0)
    assert codes(rows) == [("t", ErrorCode.REQUEST_TIMED_OUT)]
    await broker.topics.create("t", [[0]])
    await broker.close()


@in_loop
async def test_messages_tell_what_is_wrong(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    (row,) = await by_names(broker, "missing")
    assert row.error_message == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.text
    await broker.create_topic("t")
    (row,) = await by_names(broker, "t")
    assert row.error_message is None
    await broker.close()
