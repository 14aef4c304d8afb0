"""Commands of public how-tos for Kafka, typed behind `tidelog kafka`.

They are told in the order in which a newcomer types them, with the names of scripts as they stand
in a Kafka release. Each row: the command, what standard input holds, what the output must hold, and
the exit code. {server}, {topic}, {group} and {folder} are filled in.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.command_line import User
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, create_topic, produce


class Row(NamedTuple):
    command: str
    holds: str = ""
    stdin: str = ""
    code: int = 0


TOPICS = "kafka-topics.sh --bootstrap-server {server}"
GROUPS = "kafka-consumer-groups.sh --bootstrap-server {server}"
CONFIGS = "kafka-configs.sh --bootstrap-server {server}"
PRODUCER = "kafka-console-producer.sh --bootstrap-server {server} --topic {topic}"
CONSUMER = "kafka-console-consumer.sh --bootstrap-server {server} --topic {topic}"

HOW_TO = [
    # Topics
    Row(
        f"{TOPICS} --create --topic {{topic}} --partitions 3 --replication-factor 1",
        "Created topic",
    ),
    Row(
        f"{TOPICS} --create --topic {{topic}} --partitions 3 --replication-factor 1",
        "already exists",
        "",
        1,
    ),
    Row(f"{TOPICS} --create --if-not-exists --topic {{topic}} --partitions 3"),
    Row(f"{TOPICS} --list", "{topic}"),
    Row(f"{TOPICS} --describe --topic {{topic}}", "PartitionCount: 3\tReplicationFactor: 1"),
    Row(f"{TOPICS} --describe", "Topic: {topic}"),
    Row(f"{TOPICS} --describe --under-replicated-partitions"),
    Row(f"{TOPICS} --describe --unavailable-partitions"),
    Row(f"{TOPICS} --alter --topic {{topic}} --partitions 4"),
    Row(
        f"{TOPICS} --create --topic {{topic}}-compacted --config cleanup.policy=compact "
        "--config min.cleanable.dirty.ratio=0.01 --partitions 1",
        "Created topic",
    ),
    Row(f"{TOPICS} --describe --topics-with-overrides", "cleanup.policy=compact"),
    # Records
    Row(PRODUCER, "", "hello\nworld\n"),
    Row(f"{PRODUCER} --property parse.key=true --property key.separator=:", "", "k1:v1\nk2:v2\n"),
    Row(f"{PRODUCER} --property parse.key=true --property key.separator=:", "", "no key here\n", 1),
    Row(f"{PRODUCER} --producer-property acks=all --compression-codec zstd", "", "packed\n"),
    Row(f"{PRODUCER} --sync --request-required-acks 1 --timeout 0", "", "one by one\n"),
    Row("kafka-console-producer.sh --broker-list {server} --topic {topic}", "", "the old flag\n"),
    Row(f"{CONSUMER} --from-beginning --max-messages 7", "hello"),
    Row(
        f"{CONSUMER} --from-beginning --max-messages 7 --property print.key=true "
        "--property key.separator=-",
        "k1-v1",
    ),
    Row(
        f"{CONSUMER} --from-beginning --timeout-ms 3000 --property print.timestamp=true "
        "--property print.partition=true --property print.offset=true",
        "CreateTime:",
    ),
    Row(f"{CONSUMER} --partition 0 --offset earliest --timeout-ms 1000"),
    Row(f"{CONSUMER} --group {{group}} --from-beginning --max-messages 7", "world"),
    Row(
        "kafka-console-consumer.sh --bootstrap-server {server} --include {topic} --from-beginning "
        "--max-messages 7",
        "hello",
    ),
    Row(
        f"{CONSUMER} --from-beginning --isolation-level read_committed --max-messages 7 "
        "--consumer-property client.id=how-to",
        "hello",
    ),
    # Groups
    Row(f"{GROUPS} --list", "{group}"),
    Row(f"{GROUPS} --describe --group {{group}}", "{topic}"),
    Row(f"{GROUPS} --describe --group {{group}} --members --verbose", "#PARTITIONS"),
    Row(f"{GROUPS} --describe --group {{group}} --state", "Empty"),
    Row(f"{GROUPS} --describe --all-groups", "{topic}"),
    Row(
        f"{GROUPS} --group {{group}} --topic {{topic}} --reset-offsets --to-earliest --dry-run",
        "NEW-OFFSET",
    ),
    Row(
        f"{GROUPS} --group {{group}} --topic {{topic}} --reset-offsets --shift-by -1 --execute",
        "{topic}",
    ),
    Row(
        f"{GROUPS} --group {{group}} --all-topics --reset-offsets --by-duration PT1H --execute",
        "{topic}",
    ),
    Row(
        f"{GROUPS} --group {{group}} --topic {{topic}}:0 --reset-offsets --to-offset 0 --execute",
        "{topic}",
    ),
    Row(f"{GROUPS} --delete-offsets --group {{group}} --topic {{topic}}:0", "Successful"),
    Row(f"{GROUPS} --delete --group {{group}}", "was successful"),
    # Settings
    Row(
        f"{CONFIGS} --alter --entity-type topics --entity-name {{topic}} "
        "--add-config retention.ms=3600000",
        "Completed updating config for topic {topic}.",
    ),
    Row(
        f"{CONFIGS} --describe --entity-type topics --entity-name {{topic}}", "retention.ms=3600000"
    ),
    Row(f"{CONFIGS} --describe --all --topic {{topic}}", "segment.bytes="),
    Row(
        f"{CONFIGS} --alter --entity-type topics --entity-name {{topic}} "
        "--delete-config retention.ms",
        "Completed updating",
    ),
    Row(
        f"{CONFIGS} --alter --entity-type brokers --entity-default "
        "--add-config log.cleaner.threads=2",
        "Completed updating default config",
    ),
    Row(f"{CONFIGS} --describe --entity-type brokers --entity-default", "log.cleaner.threads=2"),
    Row(
        f"{CONFIGS} --alter --entity-type brokers --entity-default "
        "--delete-config log.cleaner.threads",
        "Completed updating default config",
    ),
    # Offsets and the rest
    Row("kafka-get-offsets.sh --bootstrap-server {server} --topic {topic}", "{topic}:0:"),
    Row(
        "kafka-get-offsets.sh --bootstrap-server {server} --topic {topic} --time -2", "{topic}:1:0"
    ),
    Row(
        "kafka-delete-records.sh --bootstrap-server {server} "
        "--offset-json-file {folder}/delete.json",
        "low_watermark: 0",
    ),
    Row(
        "kafka-leader-election.sh --bootstrap-server {server} --election-type PREFERRED "
        "--all-topic-partitions"
    ),
    Row(
        "kafka-log-dirs.sh --bootstrap-server {server} --describe --topic-list {topic}", '"logDir":'
    ),
    Row("kafka-transactions.sh --bootstrap-server {server} list", "TransactionalId"),
    Row("kafka-reassign-partitions.sh --bootstrap-server {server} --list", "No partition"),
    Row(
        "kafka-reassign-partitions.sh --bootstrap-server {server} --generate --broker-list 0 "
        "--topics-to-move-json-file {folder}/topics.json",
        "Proposed partition reassignment",
    ),
    Row(
        "kafka-producer-perf-test.sh --topic {topic} --num-records 500 --record-size 100 "
        "--throughput -1 --producer-props bootstrap.servers={server} acks=1 batch.size=10000",
        "500 records sent",
    ),
    Row(
        "kafka-consumer-perf-test.sh --bootstrap-server {server} --topic {topic} --messages 500",
        "data.consumed.in.nMsg",
    ),
    Row(f"{TOPICS} --delete --topic {{topic}}.*"),
    Row(f"{TOPICS} --delete --topic {{topic}} --if-exists"),
]


@pytest.fixture
def user(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> User:
    return User(bootstrap, capsys, monkeypatch)


def test_there_are_at_least_forty_commands_and_every_tool_is_among_them() -> None:
    from tidelog.tools.cli.kafka import command

    tools = {row.command.split(".sh")[0].removeprefix("kafka-") for row in HOW_TO}
    assert len(HOW_TO) >= 40
    # test_authorization.py, test_delegation_tokens.py and test_dump_agreement.py have these.
    assert set(command.rows) - tools == {"acls", "delegation-tokens", "dump-log"}


def test_commands_of_how_tos_work(
    user: User, bootstrap: str, topic_name: str, tmp_path: Path
) -> None:
    names = {
        "server": bootstrap,
        "topic": topic_name,
        "group": f"{topic_name}-g",
        "folder": tmp_path,
    }
    topics = {"topics": [{"topic": topic_name}], "version": 1}
    (tmp_path / "topics.json").write_text(json.dumps(topics))
    rows = [{"topic": topic_name, "partition": 0, "offset": 0}]
    (tmp_path / "delete.json").write_text(json.dumps({"partitions": rows, "version": 1}))
    for row in HOW_TO:
        words = shlex.split(row.command.format(**names))
        printed = user.types("kafka", *words, stdin=row.stdin, code=row.code)
        assert row.holds.format(**names) in printed + user.errors, (row.command, printed)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("topics", ["--list", "--no-such-flag"]),
        ("topics", []),
        ("topics", ["--list", "--create"]),
        ("topics", ["--create"]),
        ("topics", ["--list", "--partitions", "3"]),
        ("console-producer", []),
        ("console-consumer", []),
        ("console-consumer", ["--topic", "t", "--offset", "3"]),
        ("console-consumer", ["--topic", "t", "--formatter", "com.example.Mine"]),
        ("console-consumer", ["--topic", "t", "--property", "value.deserializer=com.example.Mine"]),
        ("console-consumer", ["--topic", "t", "--partition", "0", "--offset", "soon"]),
        ("consumer-groups", []),
        ("consumer-groups", ["--describe"]),
        ("consumer-groups", ["--reset-offsets", "--group", "g", "--topic", "t"]),
        ("consumer-groups", ["--reset-offsets", "--group", "g", "--to-latest", "--to-earliest"]),
        ("configs", ["--describe"]),
        ("configs", ["--describe", "--entity-type", "planets"]),
        ("configs", ["--alter", "--topic", "t"]),
        ("get-offsets", ["--time", "soon"]),
        ("delete-records", []),
        ("leader-election", ["--topic", "t"]),
        ("reassign-partitions", ["--execute"]),
        ("reassign-partitions", ["--list", "--throttle", "5"]),
        ("log-dirs", []),
        ("transactions", ["fly"]),
        ("transactions", ["abort", "--topic", "t", "--partition", "0"]),
        ("producer-perf-test", ["--topic", "t"]),
        ("consumer-perf-test", ["--topic", "t"]),
    ],
)
def test_wrong_usage_exits_with_1_as_in_kafka(user: User, tool: str, arguments: list[str]) -> None:
    user.kafka(tool, *arguments, code=2 if arguments == ["fly"] else 1)
    assert user.errors


def test_a_tool_without_a_server_says_so(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.tools.cli.main import main

    assert main(["kafka", "get-offsets", "--topic", "t"]) == 1
    assert main(["kafka", "topics", "--list"]) == 1


def test_an_unknown_tool_is_answered_with_the_nearest(user: User) -> None:
    user.types("kafka", "kafka-topcis", code=2)
    assert "there is no command" in user.errors


def test_numbers_are_shown_by_kafkas_deserializers(
    user: User, bootstrap: str, topic_name: str
) -> None:
    with RawClient(bootstrap) as client:
        create_topic(client, topic_name)
        produce(client, topic_name, batch((7).to_bytes(8, "big")))
        produce(client, topic_name, batch(b"short"))
    read = ("--topic", topic_name, "--partition", "0", "--offset", "earliest")
    name = "org.apache.kafka.common.serialization.LongDeserializer"
    shown = user.kafka(
        "console-consumer", *read, "--value-deserializer", name, "--max-messages", "1"
    )
    assert shown == ["7"]
    more = ("--value-deserializer", name, "--max-messages", "2")
    assert user.kafka("console-consumer", *read, *more, code=1) == ["7"]
    assert "is not 8" in user.errors
    user.kafka("console-consumer", *read, *more, "--skip-message-on-error")
    assert "skipping this message" in user.errors
    assert "Processed a total of 2 messages" in user.errors


def test_a_plan_is_exported_and_read_back(
    user: User, bootstrap: str, topic_name: str, tmp_path: Path
) -> None:
    with RawClient(bootstrap) as client:
        create_topic(client, topic_name, 2)
        produce(client, topic_name, batch(b"a", b"b"), 1)
    group = ("--group", topic_name, "--reset-offsets")
    one = ("--topic", topic_name)
    plan = user.kafka("consumer-groups", *group, *one, "--to-latest", "--export", "--dry-run")
    assert [line for line in plan if line] == [f"{topic_name},0,0", f"{topic_name},1,2"]
    file = tmp_path / "plan.csv"
    file.write_text("\n".join(plan))
    user.kafka("consumer-groups", *group, "--from-file", str(file), "--execute")
    found = user.rows("group", "describe", topic_name)
    assert [row["current_offset"] for row in found] == [0, 2]


def test_live_names_are_completed(bootstrap: str, topic_name: str) -> None:
    from tests.support.command_line import completions

    with RawClient(bootstrap) as client:
        create_topic(client, topic_name)
    assert completions(f"tidelog -b {bootstrap} topic describe", topic_name[:-2]) == [topic_name]
    assert completions(f"tidelog consume -b {bootstrap}", topic_name[:-2]) == [topic_name]
    assert completions(f"tidelog group describe -b {bootstrap}", "no-such-group") == []
