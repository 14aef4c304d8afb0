"""Client options as users give them: Kafka's names, texts or values, some of them for others."""

from __future__ import annotations

import pickle

import pytest

from tidelog.config.client import READ_COMMITTED, Address, ClientConfig, parse_address
from tidelog.config.definition import ConfigError

BOOTSTRAP = {"bootstrap.servers": "a:9092, [::1]:9093"}


def test_defaults_are_those_of_kafka() -> None:
    config = ClientConfig(BOOTSTRAP)
    assert config.bootstrap_servers == [Address("a", 9092), Address("::1", 9093)]
    assert config.integer("request.timeout.ms") == 30_000
    assert config.integer("delivery.timeout.ms") == 120_000
    assert config.integer("fetch.max.bytes") == 52_428_800
    assert (config.acks, config.is_idempotent, config.in_flight_max) == (-1, True, 5)
    assert config.partitioner == "default"
    assert config.warnings == []


def test_values_may_be_numbers_and_booleans() -> None:
    config = ClientConfig({**BOOTSTRAP, "batch.size": 100, "check.crcs": False, "retries": " 7 "})
    assert config.integer("batch.size") == 100
    assert config.flag("check.crcs") is False
    assert config.integer("retries") == 7


def test_keys_of_kafkas_clients_without_effect_here_are_warned_of() -> None:
    config = ClientConfig({**BOOTSTRAP, "linger.ms": "5", "ssl.truststore.location": "/x"})
    assert config.warnings == [
        "linger.ms is accepted and has no effect",
        "ssl.truststore.location is accepted and has no effect",
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("batch.sise", "; did you mean batch.size?"),
        ("isolation.levle", "; did you mean isolation.level?"),
        ("xyz", ""),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ClientConfig({**BOOTSTRAP, name: "1"})
    assert str(refused.value) == f"unknown configuration key {name}{hint}"


def test_transactions_are_refused_rather_than_left_out() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id: this client has no transactions"):
        ClientConfig({**BOOTSTRAP, "transactional.id": "mine"})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": ""}, "bootstrap.servers"),
        ({"bootstrap.servers": "nowhere"}, "nowhere"),
        ({"bootstrap.servers": "a:70000"}, "a:70000"),
        ({**BOOTSTRAP, "security.protocol": "SASL_SSL"}, "security.protocol"),
        ({**BOOTSTRAP, "acks": "2"}, "acks"),
        ({**BOOTSTRAP, "isolation.level": "serializable"}, "isolation.level"),
        ({**BOOTSTRAP, "compression.type": "brotli"}, "compression.type"),
        ({**BOOTSTRAP, "request.timeout.ms": "soon"}, "request.timeout.ms"),
        ({**BOOTSTRAP, "partitioner.class": "com.example.Mine"}, "partitioner.class"),
        ({**BOOTSTRAP, "enable.idempotence": "true", "acks": "1"}, "acks"),
        (
            {
                **BOOTSTRAP,
                "enable.idempotence": "true",
                "max.in.flight.requests.per.connection": "6",
            },
            "max.in.flight.requests.per.connection",
        ),
    ],
)
def test_what_no_client_could_work_with_is_refused_by_name(
    options: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        ClientConfig(options)


def test_acks_below_all_give_up_idempotence_unless_it_was_asked_for() -> None:
    assert not ClientConfig({**BOOTSTRAP, "acks": "1"}).is_idempotent
    assert not ClientConfig({**BOOTSTRAP, "enable.idempotence": "false"}).is_idempotent


def test_in_flight_requests_of_an_idempotent_client_are_at_most_five() -> None:
    options = {**BOOTSTRAP, "max.in.flight.requests.per.connection": 50}
    assert ClientConfig(options).in_flight_max == 5
    assert ClientConfig({**options, "acks": "1"}).in_flight_max == 50


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round-robin"),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", "sticky"),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "default"),
    ],
)
def test_kafkas_partitioners_are_known_by_class_name(name: str, chosen: str) -> None:
    assert ClientConfig({**BOOTSTRAP, "partitioner.class": name}).partitioner == chosen


def test_a_configuration_survives_pickling() -> None:
    config = ClientConfig({**BOOTSTRAP, "isolation.level": "read_committed", "linger.ms": "1"})
    again = pickle.loads(pickle.dumps(config))
    assert again.isolation_level == READ_COMMITTED
    assert again.values == config.values
    assert again.warnings == config.warnings


def test_an_address_may_carry_a_protocol() -> None:
    assert parse_address("PLAINTEXT://h:1") == Address("h", 1)
    assert str(Address("::1", 5)) == "[::1]:5"
