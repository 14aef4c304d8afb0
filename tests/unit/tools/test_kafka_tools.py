"""What Kafka's tools read and print, without a broker."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tidelog.client.errors import refused
from tidelog.errors import ErrorCode
from tidelog.tools.cli.record_input import InputRecord
from tidelog.tools.kafka.configs import configs_to_add, entities, java_double
from tidelog.tools.kafka.console_consumer import DefaultMessageFormatter
from tidelog.tools.kafka.console_producer import LineReader
from tidelog.tools.kafka.consumer_groups import assignment_text, plan_as_csv, plan_from_csv
from tidelog.tools.kafka.consumer_perf_test import java_date
from tidelog.tools.kafka.frame import (
    IncludeList,
    ToolFailed,
    broker_words,
    java_exception,
    java_words,
    table,
)
from tidelog.tools.kafka.get_offsets import by_patterns, by_topic
from tidelog.tools.kafka.producer_perf_test import spread
from tidelog.tools.kafka.topics import parse_replica_assignment
from tidelog.types import TopicPartition


class Record(NamedTuple):
    partition: int = 3
    offset: int = 41
    timestamp: int = 7
    timestamp_type: int = 0
    key: bytes | None = b"k"
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        ({}, b"null\n"),
        ({"print.key": "true", "key.separator": "-"}, b"k-null\n"),
        ({"print.value": "false", "print.key": "TRUE"}, b"k\n"),
        ({"print.value": "false"}, b""),
        ({"null.literal": "", "line.separator": ";"}, b";"),
        (
            {f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "headers")},
            b"CreateTime:7\tPartition:3\tOffset:41\ta:1,b:null\tnull\n",
        ),
    ],
)
def test_the_formatter_prints_the_columns_asked_for(
    properties: dict[str, str], line: bytes
) -> None:
    assert DefaultMessageFormatter(properties).format(Record()) == line  # type: ignore[arg-type]


def test_a_record_may_lack_a_timestamp_and_headers() -> None:
    record = Record(timestamp_type=-1, headers=())
    properties = {"print.timestamp": "true", "print.headers": "true", "print.value": "false"}
    shown = DefaultMessageFormatter(properties).format(record)  # type: ignore[arg-type]
    assert shown == b"NO_TIMESTAMP\tNO_HEADERS\n"


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        ({}, "a\tb", InputRecord(b"a\tb")),
        ({"parse.key": "true"}, "k\tv\tw", InputRecord(b"v\tw", b"k")),
        (
            {"parse.key": "true", "parse.headers": "true"},
            "a:1,b:\tk\tv",
            InputRecord(b"v", b"k", (("a", b"1"), ("b", b""))),
        ),
        ({"parse.key": "true", "null.marker": "N"}, "N\tN", InputRecord(None, None)),
        ({"parse.key": "true", "ignore.error": "true"}, "no key", InputRecord(b"no key")),
        (
            {"parse.headers": "true", "ignore.error": "true"},
            "flag\tv",
            InputRecord(b"v", None, (("flag", None),)),
        ),
    ],
)
def test_lines_are_read_as_kafka_reads_them(
    properties: dict[str, str], line: str, record: InputRecord
) -> None:
    assert LineReader(properties).read(line) == record


@pytest.mark.parametrize(
    ("properties", "line", "why"),
    [
        ({"parse.key": "true"}, "no tab", "No key separator found on line number 1: 'no tab'"),
        ({"parse.headers": "true"}, "h\tv", "No header key separator found in pair 'h'"),
        ({"parse.headers": "true", "null.marker": "N"}, "N:1\tv", "Header keys should not"),
    ],
)
def test_a_line_without_its_marks_is_refused(
    properties: dict[str, str], line: str, why: str
) -> None:
    with pytest.raises(ToolFailed, match=why):
        LineReader(properties).read(line)


@pytest.mark.parametrize(
    "properties",
    [{"headers.delimiter": ","}, {"null.marker": ":"}, {"key.separator": "x", "null.marker": "x"}],
)
def test_marks_have_to_differ(properties: dict[str, str]) -> None:
    with pytest.raises(ToolFailed, match="may not be equal"):
        LineReader(properties)


@pytest.mark.parametrize(
    ("raw", "topic", "allowed"),
    [
        ("a,b", "b", True),
        ("a|b", "c", False),
        ("t.*", "topic", True),
        ("t", "topic", False),
        ('"quoted"', "quoted", True),
    ],
)
def test_an_include_list_matches_whole_names(raw: str, topic: str, allowed: bool) -> None:
    assert IncludeList(raw).allows(topic, exclude_internal=False) is allowed
    assert not IncludeList(".*").allows("__consumer_offsets", exclude_internal=True)
    with pytest.raises(ToolFailed, match="invalid regex"):
        IncludeList("(")


@pytest.mark.parametrize(
    ("patterns", "partitions"),
    [("t:1", [1]), ("t:0-2", [0, 1]), ("t:2-", [2, 3]), ("t:-1", [0]), ("x,t:3", [3]), (":0", [0])],
)
def test_patterns_choose_partitions(patterns: str, partitions: list[int]) -> None:
    accepts = by_patterns(patterns)
    assert [n for n in range(4) if accepts(TopicPartition("t", n))] == partitions
    assert by_topic("t", "1,2")(TopicPartition("t", 2))
    with pytest.raises(ToolFailed, match="Invalid rule"):
        by_patterns("t:1:2")


def flags(**given: Any) -> dict[str, Any]:
    names = (
        "topic", "client", "user", "broker", "broker_logger", "ip", "client_metrics", "group",
        "client_defaults", "user_defaults", "broker_defaults", "ip_defaults", "add_config",
        "add_config_file", "entity_default",
    )  # fmt: skip
    return {**dict.fromkeys(names), "entity_types": (), "entity_names": (), **given}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"entity_types": ("topics",), "entity_names": ("t",)}, (["topics"], ["t"])),
        ({"entity_types": ("brokers",), "entity_default": True}, (["brokers"], [""])),
        ({"broker_defaults": True}, (["brokers"], [""])),
        ({"topic": "t"}, (["topics"], ["t"])),
        ({"user": "u", "client": "c"}, (["clients", "users"], ["c", "u"])),
        ({"entity_types": ("users",)}, (["users"], [])),
    ],
)
def test_entities_are_named_in_two_ways(
    given: dict[str, Any], expected: tuple[list[str], list[str]]
) -> None:
    assert entities(flags(**given)) == expected


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"entity_types": ("planets",)},
        {"entity_types": ("topics", "topics")},
        {"entity_types": ("topics", "users")},
        {"entity_types": ("topics",), "topic": "t"},
        {"broker": "one"},
    ],
)
def test_entities_that_do_not_go_together_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ToolFailed):
        entities(flags(**given))


def test_values_in_brackets_hold_commas() -> None:
    found = configs_to_add(flags(add_config="a=1,b=[x,y=z],c="))
    assert found == {"a": "1", "b": "x,y=z", "c": ""}
    for bad in ("a", "a=1=2", "a b=1"):
        with pytest.raises(ToolFailed):
            configs_to_add(flags(add_config=bad))


def test_replica_assignments_are_checked() -> None:
    assert parse_replica_assignment("1:2,2:3") == {0: [1, 2], 1: [2, 3]}
    for bad in ("1:1", "1:2,3", "x", "1:"):
        with pytest.raises(ToolFailed):
            parse_replica_assignment(bad)


def test_plans_are_csv_with_and_without_groups() -> None:
    plan = {TopicPartition("t", 1): 5, TopicPartition("t", 0): 4}
    assert plan_as_csv({"g": plan}, with_group=False) == "t,0,4\nt,1,5\n"
    with_group = plan_as_csv({"g": plan}, with_group=True)
    assert plan_from_csv(with_group, "g") == plan
    assert plan_from_csv(with_group, "another") == {}
    with pytest.raises(ToolFailed):
        plan_from_csv("t,0", "g")


def test_assignments_are_grouped_by_topic() -> None:
    places = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0)]
    assert assignment_text(places) == "(0), (0,1)"
    assert assignment_text([]) == "-"


def test_a_flag_of_many_words_is_spread() -> None:
    assert spread(["--p", "a=1", "b=2", "--x", "y"], "--p") == [
        "--p",
        "a=1",
        "--p",
        "b=2",
        "--x",
        "y",
    ]


def test_dates_are_those_of_java() -> None:
    assert java_date(1_700_000_000_007, "yyyy").isdigit()
    assert java_date(1_700_000_000_007, "ss:SSS") == "20:007"


def test_refusals_are_said_in_the_brokers_words() -> None:
    error = refused("topic t", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")
    assert broker_words(error) == "Topic 't' already exists."
    assert java_words(error) == (
        "org.apache.kafka.common.errors.TopicExistsException: Topic 't' already exists."
    )
    assert broker_words(ToolFailed("plain")) == "plain"
    assert java_exception("KAFKA_STORAGE_ERROR").endswith(".KafkaStorageException")


def test_a_table_has_tabs_behind_its_columns() -> None:
    assert table(("A", "BB"), [("long", 1)]) == "A   \tBB\t\nlong\t1 \t"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024.0"),
        (12.5, "12.5"),
        (9999999.0, "9999999.0"),
        (10485760.0, "1.048576E7"),
        (1e7, "1.0E7"),
        (9.223372036854776e18, "9.223372036854776E18"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00012, "1.2E-4"),
    ],
)
def test_a_quota_is_printed_as_java_prints_it(value: float, text: str) -> None:
    assert java_double(value) == text
