"""The rows against the keys of Apache Kafka 3.9.2, as its own tables list them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.config.broker import BROKER_TABLE, BrokerConfig
from tidelog.config.definition import Key, to_text
from tidelog.config.description import BrokerLayers
from tidelog.config.topic import TOPIC_TABLE

OUR_DEFAULTS = {
    "group.consumer.assignors": "uniform,range",  # these three as in Kafka 4
    "group.consumer.migration.policy": "bidirectional",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "max.connections": "50000",
    "max.connections.per.ip": "10000",
    "num.network.threads": "1",
    "socket.receive.buffer.bytes": "-1",
    "socket.send.buffer.bytes": "262144",
}
FIXED_WHILE_RUNNING = {
    "advertised.listeners",
    "listener.security.protocol.map",
    "listeners",
    "num.network.threads",
}
NOT_IN_KAFKAS_TABLE = {
    "allow.everyone.if.no.acl.found",
    "super.users",
    "follower.replication.throttled.rate",
    "group.consumer.regex.refresh.interval.ms",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "tidelog.client.metrics.series.max",
    "tidelog.events.kept",
    "tidelog.health.loop.stall.ms",
    "tidelog.loop.stall.warn.ms",
    "tidelog.metrics.listener",
    "tidelog.metrics.series.max",
    "tidelog.slow.request.log.ms",
}


class Fact(NamedTuple):
    table: str
    name: str
    type: str
    default: str
    importance: str
    change: str
    internal: str


def facts(table: str) -> list[Fact]:
    lines = Path(__file__).with_name("kafka_3_9_2_keys.txt").read_text().splitlines()
    rows = [Fact(*line.split("|")) for line in lines if not line.startswith("#")]
    return [row for row in rows if row.table == table]


def default_text(key: Key) -> str:
    text = to_text(key.default)
    return "<null>" if text is None else text


@pytest.mark.parametrize("fact", facts("broker"), ids=lambda fact: fact.name)
def test_broker_key_is_as_in_kafka(fact: Fact) -> None:
    key = BROKER_TABLE[fact.name]
    change = "read-only" if fact.name in FIXED_WHILE_RUNNING else fact.change
    assert (key.type.name, key.importance, key.dynamic, key.internal) == (
        fact.type,
        fact.importance,
        change,
        fact.internal == "internal",
    )
    assert default_text(key) == OUR_DEFAULTS.get(fact.name, fact.default)


@pytest.mark.parametrize("fact", facts("topic"), ids=lambda fact: fact.name)
def test_topic_key_is_as_in_kafka(fact: Fact) -> None:
    key = TOPIC_TABLE[fact.name]
    assert (key.type.name, key.importance) == (fact.type, fact.importance)
    assert default_text(key) == fact.default


def test_there_are_no_other_keys() -> None:
    assert {key.name for key in TOPIC_TABLE} == {fact.name for fact in facts("topic")}
    assert {key.name for key in BROKER_TABLE} == {
        fact.name for fact in facts("broker")
    } | NOT_IN_KAFKAS_TABLE


def test_a_broker_describes_the_same_names_as_kafka() -> None:
    described = {entry.name for entry in BrokerLayers(BrokerConfig()).describe_broker()}
    assert described == {fact.name for fact in facts("broker") if not fact.internal}


@pytest.mark.parametrize("key", [*BROKER_TABLE, *TOPIC_TABLE], ids=lambda key: key.name)
def test_the_default_is_valid_and_its_text_gives_it_back(key: Key) -> None:
    text = to_text(key.default)
    assert text is None or key.parse(text) == key.default


@pytest.mark.parametrize("key", [*BROKER_TABLE, *TOPIC_TABLE], ids=lambda key: key.name)
def test_every_key_is_documented(key: Key) -> None:
    assert len(key.doc) > 10
    assert key.doc.endswith((".", "..."))


def test_every_synonym_of_a_topic_key_is_a_broker_key_with_the_same_default() -> None:
    for key in TOPIC_TABLE:
        for name, factor in key.synonyms:
            default = BROKER_TABLE[name].default
            if factor == 1:
                assert default in (None, key.default), (key, name)
            else:
                assert default is None or default * factor == key.default, (key, name)
