"""`tidelog groups` against a broker: groups with and without members."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conftest import SharedBroker
from tests.support.console import Console
from tests.support.eventually import eventually
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, create_topic, produce

PARTITIONS = 3
RECORDS = 10  # a partition; the last five are an hour younger
WITHIN_S = 30.0
HOUR_MS = 3_600_000


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str], bootstrap: str) -> Console:
    return Console(capsys, "groups", bootstrap)


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> str:
    now_ms = time.time_ns() // 1_000_000
    with RawClient(bootstrap) as client:
        create_topic(client, topic_name, PARTITIONS)
        for partition in range(PARTITIONS):
            for ago_ms in (2 * HOUR_MS, HOUR_MS):
                records = batch(*[b"v"] * (RECORDS // 2), base_timestamp=now_ms - ago_ms)
                produce(client, topic_name, records, partition)
    return topic_name


@pytest.fixture
def idle(bootstrap: str, topic: str) -> str:
    """A group, called like its topic, that has committed 4, 5 and 6."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    places = [TopicPartition(topic, index, 4 + index) for index in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    return topic


@pytest.fixture
def live(broker: SharedBroker, topic: str) -> Iterator[str]:
    """A group, called like its topic, with one member that owns everything."""
    owned: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "client.id": "c",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(
        [topic], on_assign=lambda _, places: owned.extend(p.partition for p in places)
    )

    def owns_everything() -> bool:
        consumer.poll(0.1)
        return len(owned) == PARTITIONS

    eventually(owns_everything, WITHIN_S)
    yield topic
    consumer.close()


def offsets(console: Console, group: str) -> dict[str, tuple[str, str]]:
    rows = console("describe", "--group", group)
    return {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LAG"]) for row in rows}


IDLE_OFFSETS = {"0": ("4", "6"), "1": ("5", "5"), "2": ("6", "4")}


def test_groups_are_listed(console: Console, idle: str) -> None:
    console("list")
    assert idle in console.text.splitlines()
    listed = {row["GROUP"]: row for row in console("list", "--state", "--type")}
    assert listed[idle] == {"GROUP": idle, "TYPE": "Classic", "STATE": "Empty"}
    assert idle not in [row["GROUP"] for row in console("list", "--state", "Stable")]
    assert idle in [row["GROUP"] for row in console("list", "--type", "classic")]


def test_group_without_members_has_offsets_and_lag(console: Console, idle: str) -> None:
    assert offsets(console, idle) == IDLE_OFFSETS
    assert "no active members" in console.errors
    (state,) = console("describe", "--group", idle, "--state")
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")


def test_members_of_a_live_group_are_described(console: Console, live: str) -> None:
    (member,) = console("describe", "--group", live, "--members", "--verbose")
    assert member["#PARTITIONS"] == str(PARTITIONS)
    assert member["CLIENT-ID"] == "c"
    assert member["ASSIGNMENT"] == ",".join(f"{live}-{index}" for index in range(PARTITIONS))
    (state,) = console("describe", "--group", live, "--state")
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"]) == ("Stable", "range")
    rows = console("describe", "--group", live)
    assert {row["CONSUMER-ID"] for row in rows} == {member["CONSUMER-ID"]}
    assert {row["LOG-END-OFFSET"] for row in rows} == {str(RECORDS)}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--to-earliest"], [0, 0, 0]),
        (["--to-latest"], [10, 10, 10]),
        (["--to-current"], [4, 5, 6]),
        (["--to-offset", "7"], [7, 7, 7]),
        (["--to-offset", "99"], [10, 10, 10]),
        (["--shift-by", "-5"], [0, 0, 1]),
        (["--by-duration", "PT90M"], [5, 5, 5]),
        (["--to-datetime", "2020-01-01T00:00:00.000"], [0, 0, 0]),
        (["--to-datetime", "2120-01-01T00:00:00.000"], [10, 10, 10]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)
def test_offsets_are_reset(
    console: Console, idle: str, how: list[str], expected: list[int]
) -> None:
    arguments = ["reset-offsets", "--group", idle, "--topic", idle, *how]
    planned = [int(row["NEW-OFFSET"]) for row in console(*arguments)]
    assert planned == expected
    assert "--execute" in console.errors
    assert offsets(console, idle) == IDLE_OFFSETS
    console(*arguments, "--execute")
    found = offsets(console, idle)
    assert [int(found[str(index)][0]) for index in range(PARTITIONS)] == expected


def test_some_partitions_are_reset(console: Console, idle: str) -> None:
    place = ["--topic", f"{idle}:0,2"]
    console("reset-offsets", "--group", idle, *place, "--to-latest", "--execute")
    assert offsets(console, idle) == {"0": ("10", "0"), "1": ("5", "5"), "2": ("10", "0")}
    console("reset-offsets", "--group", idle, "--all-topics", "--to-earliest", "--execute")
    assert {offset for offset, _ in offsets(console, idle).values()} == {"0"}


def test_live_group_is_neither_reset_nor_deleted(console: Console, live: str) -> None:
    where = ["--topic", live, "--to-earliest", "--execute"]
    console("reset-offsets", "--group", live, *where, code=1)
    assert "Stable" in console.errors
    console("delete", "--group", live, code=1)
    assert "NON_EMPTY_GROUP" in console.errors
    (row,) = console("delete-offsets", "--group", live, "--topic", f"{live}:0", code=1)
    assert row["STATUS"] == "Error: GROUP_SUBSCRIBED_TO_TOPIC"


def test_offsets_and_then_the_group_are_deleted(console: Console, idle: str) -> None:
    (row,) = console("delete-offsets", "--group", idle, "--topic", f"{idle}:1")
    assert row == {"TOPIC": idle, "PARTITION": "1", "STATUS": "Successful"}
    assert offsets(console, idle).keys() == {"0", "2"}
    console("delete", "--group", idle)
    assert "successful" in console.text
    console("describe", "--group", idle, code=1)
    assert "does not exist" in console.errors


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--topic", "{}:9", "--to-earliest"], "no partition 9"),
        (["--topic", "{}:", "--to-earliest"], "no partition"),
        (["--topic", "{}", "--to-datetime", "yesterday"], "yesterday"),
        (["--topic", "{}", "--by-duration", "P"], "P is no duration"),
        (["--topic", "no-such-topic", "--to-earliest"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    console: Console, idle: str, arguments: list[str], why: str
) -> None:
    given = [argument.format(idle) for argument in arguments]
    console("reset-offsets", "--group", idle, *given, code=1)
    assert why in console.errors
    assert console.errors.count("\n") == 1
