"""Every row tells the truth about what comes of its key."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tidelog.config.broker import BROKER_TABLE, BrokerConfig
from tidelog.config.definition import BOOLEAN, ConfigError, ConfigTable, EffectKind, Key
from tidelog.config.topic import TOPIC_TABLE, validate_overrides

SOURCE = Path(__file__).parents[3] / "src" / "tidelog"
# What the broker reads. Tools and clients have keys of the same names.
READERS = ("broker", "controller", "coordinator", "log", "network", "replication", "sasl", "tls")

# Keys that BrokerConfig turns into an attribute of another name.
BROKER_ATTRIBUTES = {
    "authorizer.class.name": "has_authorizer",
    "broker.rack": "rack",
    "connections.max.reauth.ms": "max_reauth_ms",
    "controller.listener.names": "listeners",
    "listener.security.protocol.map": "listeners",
    "log.dir": "log_dirs",
    "node.id": "broker_id",
    "tidelog.metrics.listener": "metrics_listener",
    "delegation.token.master.key": "delegation_token_secret_key",
    "sasl.enabled.mechanisms": "mechanisms",
    "sasl.login.connect.timeout.ms": "connect_timeout_ms",
    "sasl.login.read.timeout.ms": "read_timeout_ms",
    "sasl.login.refresh.buffer.seconds": "buffer_seconds",
    "sasl.login.refresh.min.period.seconds": "min_period_seconds",
    "sasl.login.refresh.window.factor": "window_factor",
    "sasl.login.refresh.window.jitter": "window_jitter",
    "sasl.login.retry.backoff.max.ms": "retry_backoff_max_ms",
    "sasl.login.retry.backoff.ms": "retry_backoff_ms",
    "sasl.oauthbearer.clock.skew.seconds": "clock_skew_seconds",
    "sasl.oauthbearer.expected.audience": "expected_audience",
    "sasl.oauthbearer.expected.issuer": "expected_issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "refresh_ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "retry_backoff_max_ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "retry_backoff_ms",
    "sasl.oauthbearer.jwks.endpoint.url": "jwks",
    "sasl.oauthbearer.scope.claim.name": "scope_claim_name",
    "sasl.oauthbearer.sub.claim.name": "sub_claim_name",
    "sasl.oauthbearer.token.endpoint.url": "endpoint",
    "sasl.jaas.config": "plain_users",
    "sasl.mechanism.inter.broker.protocol": "inter_broker_login",
    "sasl.server.max.receive.size": "max_receive_size",
    "security.inter.broker.protocol": "inter_broker_listener_name",
}
# Keys that LogConfig has under another name.
TOPIC_ATTRIBUTES = {
    "cleanup.policy": "compact",
    "message.timestamp.difference.max.ms": "message_timestamp_before_max_ms",
    "segment.ms": "max_segment_ms",
}
# A configuration that the key makes invalid.
CONFLICTS = {
    "controller.quorum.bootstrap.servers": {"controller.quorum.bootstrap.servers": "other:1"},
    "controller.quorum.voters": {"controller.quorum.voters": "9@other:1"},
    "process.roles": {"process.roles": "broker"},
    "group.consumer.max.heartbeat.interval.ms": {"group.consumer.max.heartbeat.interval.ms": "1"},
    "group.consumer.max.session.timeout.ms": {"group.consumer.max.session.timeout.ms": "1"},
    "group.consumer.min.heartbeat.interval.ms": {
        "group.consumer.min.heartbeat.interval.ms": "15000"
    },
    "group.consumer.min.session.timeout.ms": {"group.consumer.min.session.timeout.ms": "60000"},
}

BROKER_SYNONYMS = {name for key in TOPIC_TABLE for name, _ in key.synonyms}


@cache
def source_of_readers() -> str:
    paths = (path for package in READERS for path in (SOURCE / package).rglob("*.py"))
    return "\n".join(path.read_text() for path in sorted(paths))


@cache
def source_of_config() -> str:
    return "".join(
        (SOURCE / "config" / name).read_text() for name in ("broker.py", "oauth.py", "sasl.py")
    )


def is_named(key: Key) -> bool:
    return f'"{key.name}"' in source_of_readers()


def is_attribute(name: str) -> bool:
    return re.search(rf"\.{name}\b", source_of_readers()) is not None


def of_kind(table: ConfigTable, kind: EffectKind) -> list[Key]:
    return [key for key in table if key.effect.kind is kind]


def other_value(key: Key) -> str:
    if key.type is BOOLEAN:
        return "false" if key.default else "true"
    return {"ssl.client.auth": "required"}.get(key.name, "x")


@pytest.mark.parametrize("key", of_kind(BROKER_TABLE, EffectKind.WIRED), ids=lambda key: key.name)
def test_a_wired_broker_key_is_read_by_the_broker(key: Key) -> None:
    if key.name in BROKER_SYNONYMS or is_named(key):
        return
    attribute = BROKER_ATTRIBUTES.get(key.name, key.name.replace(".", "_"))
    assert f'"{key.name}"' in source_of_config(), "nothing reads it"
    assert is_attribute(attribute), f"nothing reads BrokerConfig.{attribute}"


@pytest.mark.parametrize("key", of_kind(TOPIC_TABLE, EffectKind.WIRED), ids=lambda key: key.name)
def test_a_wired_topic_key_is_read_by_the_broker(key: Key) -> None:
    attribute = TOPIC_ATTRIBUTES.get(key.name, key.name.replace(".", "_"))
    assert is_named(key) or is_attribute(attribute), f"nothing reads LogConfig.{attribute}"


def test_a_broker_key_that_gives_a_topic_its_default_has_the_same_effect() -> None:
    for key in TOPIC_TABLE:
        for name, _ in key.synonyms:
            assert BROKER_TABLE[name].effect.kind is key.effect.kind, (key, name)


@pytest.mark.parametrize("key", of_kind(BROKER_TABLE, EffectKind.CHECKED), ids=lambda key: key.name)
def test_a_checked_key_can_make_a_configuration_invalid(key: Key) -> None:
    assert not is_named(key)
    with pytest.raises(ConfigError):
        BrokerConfig({**CONFLICTS[key.name], "node.id": "1"})


@pytest.mark.parametrize("key", of_kind(BROKER_TABLE, EffectKind.REFUSED), ids=lambda key: key.name)
def test_a_refused_key_ends_the_start_and_says_what_to_do(key: Key) -> None:
    assert not is_named(key)
    assert "remove the key" in key.effect.reason
    with pytest.raises(ConfigError, match=re.escape(f"{key.name}: {key.effect.reason}")):
        BrokerConfig({key.name: other_value(key)})


@pytest.mark.parametrize("key", of_kind(TOPIC_TABLE, EffectKind.REFUSED), ids=lambda key: key.name)
def test_a_refused_topic_key_cannot_be_set(key: Key) -> None:
    with pytest.raises(ConfigError, match=re.escape(key.effect.reason)):
        validate_overrides({key.name: other_value(key)})


@pytest.mark.parametrize(
    "key",
    [*of_kind(BROKER_TABLE, EffectKind.HARMLESS), *of_kind(TOPIC_TABLE, EffectKind.HARMLESS)],
    ids=lambda key: key.name,
)
def test_a_harmless_key_has_a_reason_and_no_reader(key: Key) -> None:
    assert not is_named(key), "it is wired"
    assert 10 < len(key.effect.reason) < 100
    assert key.effect.reason.endswith(".")
