"""The configurations of producer, consumer and admin client: Kafka's keys, defaults and rules."""

from __future__ import annotations

import pickle

import pytest

from tidelog.config.client import (
    READ_COMMITTED,
    Address,
    AdminConfig,
    ConsumerConfig,
    KafkaConfig,
    OffsetResetPolicy,
    ProducerConfig,
    parse_address,
)
from tidelog.config.definition import ConfigError

BOOTSTRAP = {"bootstrap.servers": "a:9092"}
KINDS = (ProducerConfig, ConsumerConfig, AdminConfig)


def test_defaults_are_those_of_kafka_4() -> None:
    producer = ProducerConfig(BOOTSTRAP)
    assert producer.integer("batch.size") == 16_384
    assert producer.integer("linger.ms") == 5
    assert producer.integer("buffer.memory") == 33_554_432
    assert producer.integer("connections.max.idle.ms") == 540_000
    assert (producer.acks, producer.is_idempotent, producer.in_flight_max) == (-1, True, 5)
    consumer = ConsumerConfig(BOOTSTRAP)
    assert consumer.integer("max.partition.fetch.bytes") == 1_048_576
    assert consumer.integer("max.poll.records") == 500
    assert consumer.integer("session.timeout.ms") == 45_000
    assert consumer.offset_reset == OffsetResetPolicy("latest")
    assert not consumer.uses_consumer_protocol
    assert not consumer.auto_commits  # there is no group
    admin = AdminConfig(BOOTSTRAP)
    assert admin.integer("connections.max.idle.ms") == 300_000
    assert admin.integer("default.api.timeout.ms") == 60_000
    assert admin.rebootstraps


@pytest.mark.parametrize("kind", KINDS)
def test_keywords_stand_for_keys(kind: type[KafkaConfig]) -> None:
    config = kind.of({"client.id": "x"}, {"bootstrap_servers": ["a:1", "b:2"], "client_id": "y"})
    assert [str(address) for address in config.bootstrap_servers] == ["a:1", "b:2"]
    assert config.text("client.id") == "y"
    again = kind.of(config)
    assert again.values == config.values


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (ProducerConfig, "linger.mss", "linger.ms"),
        (ConsumerConfig, "auto.offset.rest", "auto.offset.reset"),
        (AdminConfig, "default.api.timeout", "default.api.timeout.ms"),
        (ProducerConfig, "group.id", None),
        (ConsumerConfig, "acks", None),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_of_that_client(
    kind: type[KafkaConfig], name: str, hint: str | None
) -> None:
    with pytest.raises(ConfigError) as refused:
        kind({**BOOTSTRAP, name: "1"})
    message = str(refused.value)
    assert message.startswith(f"unknown configuration key {name}")
    assert hint is None or message.endswith(f"did you mean {hint}?")


@pytest.mark.parametrize(
    ("kind", "options", "match"),
    [
        (ProducerConfig, {}, r"bootstrap\.servers is not set"),
        (ConsumerConfig, {"bootstrap.servers": ""}, r"bootstrap\.servers is not set"),
        (ProducerConfig, {"bootstrap.servers": "a"}, "must be host:port"),
        (ConsumerConfig, {"bootstrap.servers": "a:70000"}, "a:70000"),
        (ConsumerConfig, {**BOOTSTRAP, "isolation.level": "serializable"}, r"isolation\.level"),
        (ConsumerConfig, {**BOOTSTRAP, "request.timeout.ms": "soon"}, r"request\.timeout\.ms"),
        (ProducerConfig, {**BOOTSTRAP, "acks": "2"}, "acks"),
        (ProducerConfig, {**BOOTSTRAP, "compression.type": "brotli"}, r"compression\.type"),
        (
            AdminConfig,
            {**BOOTSTRAP, "security.protocol": "SASL_SSL"},
            r"sasl\.mechanism: only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (AdminConfig, {**BOOTSTRAP, "bootstrap.controllers": "c:1"}, "asks brokers"),
        (ConsumerConfig, {**BOOTSTRAP, "interceptor.classes": "x.Y"}, "no Java classes"),
        (ConsumerConfig, {**BOOTSTRAP, "enable.auto.commit": True}, r"without a group\.id"),
        (
            ConsumerConfig,
            {**BOOTSTRAP, "group.protocol": "consumer", "session.timeout.ms": 1},
            r"group\.protocol=CONSUMER",
        ),
        (ConsumerConfig, {**BOOTSTRAP, "group.remote.assignor": "range"}, "CLASSIC"),
        (ConsumerConfig, {**BOOTSTRAP, "auto.offset.reset": "first"}, "earliest, latest"),
        (ConsumerConfig, {**BOOTSTRAP, "auto.offset.reset": "by_duration:1h"}, "PT1H"),
        (ConsumerConfig, {**BOOTSTRAP, "auto.offset.reset": "by_duration:P"}, "PT1H"),
        (ProducerConfig, {**BOOTSTRAP, "enable.idempotence": True, "acks": 1}, "needs all"),
        (ProducerConfig, {**BOOTSTRAP, "enable.idempotence": True, "retries": 0}, "at least 1"),
        (
            ProducerConfig,
            {**BOOTSTRAP, "transactional.id": "t", "max.in.flight.requests.per.connection": 6},
            "at most 5",
        ),
        (
            ProducerConfig,
            {**BOOTSTRAP, "transactional.id": "t", "enable.idempotence": False},
            r"transactional\.id needs true",
        ),
        (ProducerConfig, {**BOOTSTRAP, "transactional.id": ""}, "non-empty"),
        (ProducerConfig, {**BOOTSTRAP, "delivery.timeout.ms": 10}, r"at least linger\.ms"),
        (ProducerConfig, {**BOOTSTRAP, "partitioner.class": "com.example.Mine"}, "constructor"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    kind: type[KafkaConfig], options: dict[str, object], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        kind(options)


def test_idempotence_gives_way_to_other_keys_unless_it_was_asked_for() -> None:
    assert not ProducerConfig({**BOOTSTRAP, "acks": "1"}).is_idempotent
    assert not ProducerConfig({**BOOTSTRAP, "retries": 0}).is_idempotent
    many = {"max.in.flight.requests.per.connection": 6}
    assert not ProducerConfig({**BOOTSTRAP, **many}).is_idempotent


def test_the_default_delivery_timeout_grows_with_what_it_contains() -> None:
    config = ProducerConfig({**BOOTSTRAP, "request.timeout.ms": 200_000})
    assert config.integer("delivery.timeout.ms") == 200_005


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("PT1H", 3_600_000), ("P2D", 172_800_000), ("PT1M0.5S", 60_500), ("pt3s", 3_000)],
)
def test_an_offset_may_be_reset_by_duration(text: str, duration_ms: int) -> None:
    config = ConsumerConfig({**BOOTSTRAP, "auto.offset.reset": f"by_duration:{text}"})
    assert config.offset_reset == OffsetResetPolicy("by_duration", duration_ms)


def test_keys_without_effect_are_warned_of() -> None:
    options = {**BOOTSTRAP, "metric.reporters": "x", "metrics.context.a": 1, "ssl.protocol": "y"}
    warnings = AdminConfig(options).warnings
    assert [warning.split()[0] for warning in warnings] == [
        "metric.reporters",
        "metrics.context.a",
        "ssl.protocol",
    ]


def test_keys_of_tls_are_warned_of_where_tls_is_not_spoken() -> None:
    keys = {"ssl.truststore.location": "/trust.pem", "ssl.truststore.type": "PEM"}
    (warning,) = AdminConfig({**BOOTSTRAP, **keys}).warnings
    assert "ssl.truststore.location, ssl.truststore.type have no effect" in warning
    assert "security.protocol is PLAINTEXT" in warning
    assert AdminConfig({**BOOTSTRAP, **keys, "security.protocol": "ssl"}).warnings == []


def test_secrets_are_not_shown() -> None:
    config = AdminConfig({**BOOTSTRAP, "ssl.key.password": "hush"})
    assert "hush" not in repr(config)
    assert "[hidden]" in repr(config)


def test_a_configuration_survives_pickling() -> None:
    config = ConsumerConfig({**BOOTSTRAP, "isolation.level": "read_committed", "group.id": "g"})
    again = pickle.loads(pickle.dumps(config))
    assert (type(again), again.values) == (ConsumerConfig, config.values)
    assert again.isolation_level == READ_COMMITTED
    assert again.auto_commits


def test_values_may_be_numbers_and_booleans() -> None:
    producer = ProducerConfig({**BOOTSTRAP, "batch.size": 100, "retries": " 7 "})
    assert (producer.integer("batch.size"), producer.integer("retries")) == (100, 7)
    assert ConsumerConfig({**BOOTSTRAP, "check.crcs": False}).flag("check.crcs") is False


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round-robin"),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", "sticky"),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "default"),
    ],
)
def test_kafkas_partitioners_are_known_by_class_name(name: str, chosen: str) -> None:
    assert ProducerConfig({**BOOTSTRAP, "partitioner.class": name}).partitioner == chosen


def test_an_address_may_be_of_ipv6_and_carry_a_protocol() -> None:
    servers = ConsumerConfig({"bootstrap.servers": "a:9092, [::1]:9093"}).bootstrap_servers
    assert servers == [Address("a", 9092), Address("::1", 9093)]
    assert parse_address("PLAINTEXT://h:1") == Address("h", 1)
    assert str(Address("::1", 5)) == "[::1]:5"
