from __future__ import annotations

import pytest

from tidelog.config.definition import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    ConfigError,
    ConfigTable,
    ConfigType,
    EachOf,
    InvalidValue,
    KafkaVersion,
    Key,
    NonEmpty,
    OneOf,
    RangeOr,
    ReplicaList,
    Rule,
    UnknownKey,
    Value,
    at_least,
    between,
    to_text,
)


def key_of(type: ConfigType, valid: Rule | None = None) -> Key:
    return Key("some.key", type, None, "a key", valid=valid)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (BOOLEAN, "true", True),
        (BOOLEAN, " FALSE ", False),
        (INT, " 5000 ", 5000),
        (INT, "+7", 7),
        (INT, "-2147483648", -(2**31)),
        (INT, "00000000000000000000000012", 12),
        (SHORT, "32767", 32767),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "0.5", 0.5),
        (DOUBLE, " 1e3 ", 1000.0),
        (DOUBLE, ".5d", 0.5),
        (STRING, "\t a b \n", "a b"),
        (STRING, "", ""),
        (PASSWORD, " secret ", "secret"),
        (CLASS, " org.example.Thing ", "org.example.Thing"),
        (LIST, "", ()),
        (LIST, "   ", ()),
        (LIST, "a , b,c", ("a", "b", "c")),
        (LIST, "a,,b", ("a", "", "b")),
    ],
)
def test_values_are_read_as_kafka_reads_them(type: ConfigType, text: str, value: Value) -> None:
    assert key_of(type).parse(text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (BOOLEAN, "yes"),
        (BOOLEAN, ""),
        (INT, ""),
        (INT, "1.0"),
        (INT, "1_000"),
        (INT, "0x10"),
        (INT, "--1"),
        (INT, "+"),
        (INT, "\u0663"),
        (INT, "2147483648"),
        (INT, "9" * 5000),
        (SHORT, "32768"),
        (LONG, "9223372036854775808"),
        (DOUBLE, ""),
        (DOUBLE, "half"),
        (DOUBLE, "NaN"),
        (DOUBLE, "1_0.5"),
        (DOUBLE, "infinity"),
    ],
)
def test_what_does_not_parse_is_refused_with_key_and_value(type: ConfigType, text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^Invalid value .* for configuration some\.key: "):
        key_of(type).parse(text)


@pytest.mark.parametrize(
    ("type", "rule", "good", "bad"),
    [
        (INT, at_least(14), ["14", "2147483647"], ["13", "-1"]),
        (DOUBLE, between(0, 1), ["0", "1", "0.25"], ["-0.1", "1.01"]),
        (INT, RangeOr(1, 9, -1), ["1", "9", "-1"], ["0", "10", "-2"]),
        (STRING, OneOf("CreateTime", "LogAppendTime"), ["CreateTime"], ["createtime", ""]),
        (STRING, OneOf("UP", ignore_case=True), ["up", "UP"], ["down"]),
        (LIST, EachOf("compact", "delete"), ["", "compact,delete"], ["compact,x", "compact,"]),
        (STRING, NonEmpty(), ["x"], [""]),
        (LIST, ReplicaList(), ["*", "", "0:1,12:3"], ["0", "a:b", "*,0:1", "0:1:2"]),
        (
            STRING,
            KafkaVersion(),
            ["3.9", "3.9.1", "3.9-IV0", "0.10.2", "0.8.2.1", "2.8-IV1"],
            ["3", "5.0", "3.9-IV1", "3.9-IV", "3.9-", "0.10", "3.9.1-IV0", "", "a.b"],
        ),
    ],
)
def test_rules_accept_and_refuse(
    type: ConfigType, rule: Rule, good: list[str], bad: list[str]
) -> None:
    for text in good:
        key_of(type, rule).parse(text)
    for text in bad:
        with pytest.raises(InvalidValue):
            key_of(type, rule).parse(text)


def test_a_refusal_names_the_rule() -> None:
    with pytest.raises(InvalidValue) as raised:
        key_of(INT, at_least(14)).parse("5")
    assert str(raised.value) == (
        "Invalid value 5 for configuration some.key: Value must be at least 14"
    )


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (at_least(0), "[0,...]"),
        (between(0, 1), "[0,...,1]"),
        (RangeOr(1, 9, -1), "[1,...,9] or -1"),
        (EachOf("compact", "delete"), "[compact, delete]"),
        (NonEmpty(), "non-empty string"),
        (KafkaVersion(), "a Kafka version, 0.8.0 to 4.0"),
    ],
)
def test_rules_show_what_they_allow(rule: Rule, text: str) -> None:
    assert str(rule) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (12, "12"),
        ("x", "x"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (0.0005, "5.0E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_are_shown_as_kafka_shows_them(value: Value, text: str | None) -> None:
    assert to_text(value) == text


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    table = ConfigTable([Key("log.retention.ms", LONG, None, "x"), Key("listeners", INT, 1, "x")])
    with pytest.raises(UnknownKey) as raised:
        table.parse({"log.retention.m": "1"})
    assert str(raised.value) == (
        "unknown configuration key log.retention.m; did you mean log.retention.ms?"
    )


def test_an_unknown_key_like_no_other_is_refused_without_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"^unknown configuration key xyz$"):
        ConfigTable([Key("listeners", INT, 1, "x")]).parse({"xyz": "1"})
