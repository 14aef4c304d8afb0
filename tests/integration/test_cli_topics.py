"""`tidelog topic`, `config` and `cluster` against a broker."""

from __future__ import annotations

import json

import pytest

from tests.support.broker_process import unlike_apache_kafka
from tests.support.command_line import User
from tests.support.console import table_rows
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, create_topic, produce

RECORDS = 10  # in each partition


@pytest.fixture
def user(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> User:
    return User(bootstrap, capsys, monkeypatch)


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> str:
    """Two partitions with ten records each, a batch for every record."""
    with RawClient(bootstrap) as client:
        create_topic(client, topic_name, 2)
        for partition in range(2):
            for number in range(RECORDS):
                produce(client, topic_name, batch(b"%d" % number), partition)
    return topic_name


def offsets(user: User, topic: str, *arguments: str) -> list[tuple[int, int]]:
    rows = user.rows("topic", "offsets", topic, *arguments)
    return [(row["earliest"], row["latest"]) for row in rows]


def test_a_topic_is_made_listed_described_and_deleted(user: User, topic_name: str) -> None:
    settings = ("-p", "3", "-r", "1", "-c", "retention.ms=1000")
    printed = user.types("topic", "create", topic_name, *settings)
    assert printed == f"topic {topic_name} created with 3 partitions, 1 replica\n"
    (row,) = user.rows("topic", "list", topic_name)
    assert (row["topic"], row["partitions"], row["under_replicated"]) == (topic_name, 3, 0)
    assert user.lines("topic", "list", f"^{topic_name}$", "-q") == [topic_name]
    (page,) = user.rows("topic", "describe", topic_name)
    assert page["configs"] == {"retention.ms": "1000"}
    assert [row["partition"] for row in page["partition_list"]] == [0, 1, 2]
    assert user.types("topic", "delete", topic_name) == f"topic {topic_name} deleted\n"
    assert user.rows("topic", "list", topic_name) == []


def test_a_table_says_the_same_as_json(user: User, topic: str) -> None:
    head, columns, *_ = user.lines("topic", "describe", topic)
    assert head.startswith(f"{topic}  2 partitions, 1 replica, id ")
    assert columns == "PARTITION  LEADER  EPOCH  REPLICAS  ISR  EARLIEST  LATEST"
    (row,) = [row for row in table_rows(user.types("topic", "list")) if row["TOPIC"] == topic]
    assert row["PARTITIONS"] == "2"


def test_a_topic_that_is_there_is_refused_unless_told_otherwise(user: User, topic: str) -> None:
    user.types("topic", "create", topic, code=1)
    assert "TOPIC_ALREADY_EXISTS" in user.errors
    assert user.errors.count("\n") == 1
    assert user.types("topic", "create", topic, "--if-not-exists") == ""


def test_one_topic_that_fails_does_not_hold_up_the_others(user: User, topic_name: str) -> None:
    printed = user.types("topic", "create", "not/allowed", topic_name, "-p", "1", code=1)
    assert f"topic {topic_name} created" in printed
    assert "not/allowed" in user.errors
    user.types("topic", "delete", topic_name, "nothing-of-this-name", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in user.errors
    assert user.types("topic", "delete", topic_name, "--if-exists") == ""


def test_a_dry_run_changes_nothing(user: User, topic: str, topic_name: str) -> None:
    fresh = f"{topic_name}-fresh"
    assert "would be created" in user.types("topic", "create", fresh, "--dry-run")
    assert user.rows("topic", "list", fresh) == []
    user.types("topic", "alter", topic, "-c", "retention.ms=5", "--dry-run")
    user.types("topic", "add-partitions", topic, "--to", "9", "--dry-run")
    user.types("topic", "trim", topic, "--before", "5", "--dry-run")
    user.types("topic", "delete", f"^{topic}$", "--dry-run")
    (page,) = user.rows("topic", "describe", topic)
    assert (page["configs"], page["partitions"]) == ({}, 2)
    assert offsets(user, topic) == [(0, RECORDS)] * 2


def test_settings_of_a_topic_are_changed_and_taken_back(user: User, topic: str) -> None:
    user.types("topic", "alter", topic, "-c", "retention.ms=5000", "-c", "segment.bytes=2000000")
    user.types("topic", "alter", topic, "--unset", "segment.bytes")
    (row,) = user.rows("config", "get", "topic", topic)
    assert (row["key"], row["value"], row["source"]) == ("retention.ms", "5000", "dynamic-topic")
    user.types("topic", "alter", topic, "-c", "retention.ms=soon", code=1)
    assert "retention.ms" in user.errors


def test_partitions_are_added_but_never_taken(user: User, topic: str) -> None:
    assert "has 5 partitions" in user.types("topic", "add-partitions", topic, "--add", "3")
    user.types("topic", "add-partitions", topic, "--to", "4", code=1)
    assert "INVALID_PARTITIONS" in user.errors


@pytest.mark.parametrize(
    ("before", "first"), [("4", 4), ("-3", 7), ("+2", 2), ("end", 10), ("@-1d", 0), ("99", 10)]
)
def test_the_oldest_records_are_deleted(user: User, topic: str, before: str, first: int) -> None:
    rows = user.rows("topic", "trim", topic, "--before", before, "-p", "1")
    assert [(row["partition"], row["new_earliest"]) for row in rows] == [(1, first)]
    assert offsets(user, topic) == [(0, RECORDS), (first, RECORDS)]


def test_offsets_are_shown_at_any_place(user: User, topic: str) -> None:
    rows = user.rows("topic", "offsets", topic, "--at", "-4")
    assert [row["at"] for row in rows] == [6, 6]
    rows = user.rows("topic", "offsets", topic, "--at", "@-1d", "--committed")
    assert [(row["at"], row["latest"]) for row in rows] == [(0, RECORDS)] * 2


def test_settings_are_set_shown_and_unset(user: User, topic: str) -> None:
    change = ("config", "set", "topic", topic)
    assert user.types(*change, "retention.ms=7000", "--dry-run").endswith(
        "would be changed: retention.ms\n"
    )
    assert user.rows("config", "get", "topic", topic) == []
    user.types(*change, "retention.ms=7000", "cleanup.policy=compact")
    found = {row["key"]: row["value"] for row in user.rows("config", "get", "topic", topic)}
    assert found == {"retention.ms": "7000", "cleanup.policy": "compact"}
    (row,) = user.rows("config", "get", "topic", topic, "retention.ms")
    assert row["value"] == "7000"
    every = {row["key"] for row in user.rows("config", "get", "topic", topic, "--all")}
    assert {"segment.bytes", "retention.ms"} <= every
    user.types("config", "unset", "topic", topic, "retention.ms", "cleanup.policy")
    assert user.rows("config", "get", "topic", topic) == []


def test_settings_of_brokers_and_their_defaults(user: User) -> None:
    brokers = user.rows("cluster", "brokers")
    name = str(brokers[0]["id"])
    user.types("config", "set", "broker", "--default", "log.cleaner.threads=2")
    try:
        found = {row["key"]: row for row in user.rows("config", "get", "broker", name)}
        assert found["log.cleaner.threads"]["source"] == "dynamic-default-broker"
    finally:
        user.types("config", "unset", "broker", "--default", "log.cleaner.threads")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["get", "topic", "nothing-of-this-name"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["get", "broker", "one"], "a broker has a number"),
        (["set", "topic", "{}", "no.such.key=1"], "no.such.key"),
        (["set", "client", "me", "producer_byte_rate=fast"], "a quota is a number"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    user: User, topic: str, arguments: list[str], why: str
) -> None:
    user.types("config", *(each.format(topic) for each in arguments), code=1)
    assert why in user.errors
    assert user.errors.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["config", "get", "planet", "x"],
        ["config", "set", "topic", "t"],
        ["config", "get", "topic", "--default"],
        ["config", "set", "topic", "t", "novalue"],
        ["topic", "add-partitions", "t"],
        ["topic", "trim", "t", "--before", "never"],
        ["topic", "create", "t", "--assignment", "1:x"],
        ["topic", "list", "("],
        ["topic", "craete", "t"],
    ],
)
def test_wrong_usage_shows_the_usage_of_its_verb(user: User, arguments: list[str]) -> None:
    user.types(*arguments, code=2)
    assert user.errors.startswith(f"usage: tidelog {arguments[0]} ")


def test_a_cluster_tells_about_itself(user: User, topic: str) -> None:
    (facts,) = user.rows("cluster", "info")
    assert facts["topics"] >= 1
    assert facts["controller"] is not None
    rows = user.rows("cluster", "brokers")
    assert sum(row["leaders"] for row in rows) == facts["partitions"]
    assert "cluster id:" in user.types("cluster", "info")
    assert {row["feature"] for row in user.rows("cluster", "features")}


@unlike_apache_kafka  # it has no sizes of volumes in some versions
def test_log_directories_have_sizes(user: User, topic: str) -> None:
    (row,) = user.rows("cluster", "log-dirs")
    assert row["size"] > 0
    assert row["total"] > row["free"] > 0
    replicas = user.rows("cluster", "log-dirs", "--topic", topic, "--replicas")
    assert [(row["topic"], row["partition"]) for row in replicas] == [(topic, 0), (topic, 1)]
    user.types("cluster", "log-dirs", "--broker", "77", code=1)
    assert "there is no broker 77" in user.errors


def test_a_healthy_cluster_is_called_healthy(user: User) -> None:
    (report,) = user.rows("cluster", "health")
    assert report["healthy"] is True
    assert user.types("cluster", "health").startswith("The cluster is healthy.")


def test_formats_agree(user: User, topic: str) -> None:
    pages = json.loads(user.types("topic", "describe", topic, "-o", "json"))
    assert user.rows("topic", "describe", topic) == pages
    assert user.types("topic", "describe", topic, "-o", "yaml").startswith(f"- topic: {topic}\n")


def test_elections_that_nobody_needs(user: User, topic: str) -> None:
    rows = user.rows("elect", topic)
    assert {row["outcome"] for row in rows} == {"not needed"}
    assert user.types("elect", "--all", "--dry-run") == ""
    user.types("elect", code=2)


def test_moves_to_where_a_replica_is_are_done_at_once(
    user: User, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan = json.loads(user.types("reassign", "plan", topic))
    assert plan == {"version": 1, "partitions": []}
    (broker,) = {row["id"] for row in user.rows("cluster", "brokers")}
    file = tmp_path_factory.mktemp("moves") / "moves.json"
    rows = [{"topic": topic, "partition": 0, "replicas": [broker]}]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    user.types("reassign", "execute", str(file), "--dry-run")
    user.types("reassign", "execute", str(file))
    (row,) = user.rows("reassign", "verify", str(file))
    assert row["state"] == "done"
    user.types("reassign", "cancel", str(file))
    assert "No such move" in user.errors
    user.types("reassign", "plan", topic, "--brokers", "99", code=1)
    assert "there is no broker 99" in user.errors
    file.write_text("[")
    user.types("reassign", "execute", str(file), code=1)
    assert "no JSON" in user.errors
