"""Which changes of a broker's configuration are refused while it runs, and with which error.

Kafka's own refusals come first, in its order. Then come changes that would be accepted without
effect here, because their author would not see a warning in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from tidelog.config.broker import (
    BROKER_TABLE,
    LISTENER_KEYS,
    LISTENER_TLS_KEYS,
    BrokerConfig,
    must_find_key,
)
from tidelog.config.definition import PER_BROKER, READ_ONLY, ConfigError
from tidelog.config.sasl import SASL_LISTENER_KEYS
from tidelog.errors import ErrorCode, KafkaError

LISTENERS_OWN_KEYS: Final = frozenset((*LISTENER_KEYS, *LISTENER_TLS_KEYS, *SASL_LISTENER_KEYS))
LISTENER_ONLY_PREFIXES: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.")


def must_be_dynamic(texts: Mapping[str, str], *, per_broker: bool) -> None:
    """What Kafka refuses to change while a broker runs, in its order; then what has no effect."""
    fixed = [name for name in texts if name in BROKER_TABLE and _is_read_only(name)]
    if fixed:
        raise _refused("Cannot update these configs dynamically", fixed)
    secured = [name for name in texts if name.startswith(LISTENER_ONLY_PREFIXES)]
    if secured:
        raise _refused("These configs can be changed only with a listener prefix", secured)
    for name, text in texts.items():
        key = must_find_key(name)
        if key.sensitive:
            raise ConfigError(
                f"{name}: passwords and keys cannot be stored in dynamic configuration, where "
                "nothing here would encrypt them (password.encoder.secret); put them into "
                "server.properties, or use a store in PEM, which needs no password"
            )
        key.parse(text)
    single = [name for name in texts if _is_per_broker(name)]
    if single and not per_broker:
        raise _refused("Cannot update these configs for all brokers, a broker id is needed", single)
    for name, text in texts.items():
        _must_take_effect(name, text)


def _must_take_effect(name: str, text: str) -> None:
    """A change that is accepted is honoured; its author would not see a warning in the log."""
    key = must_find_key(name)
    if key.is_harmless and key.parse(text) != key.default:
        raise ConfigError(f"{name} would have no effect here: {key.effect.reason}")
    if key.name in LISTENER_TLS_KEYS and not key.name.startswith(LISTENER_ONLY_PREFIXES):
        raise ConfigError(
            f"Configs cannot be updated dynamically for existing listeners, restart the broker: "
            f"{name}"
        )
    if name != key.name and key.name not in LISTENERS_OWN_KEYS:
        raise ConfigError(f"{key.name} cannot be set for a single listener here: {name}")


def must_be_read_by_a_listener(config: BrokerConfig, changed: Collection[str]) -> None:
    """Of what is changed for one broker; another may have the listener that this one lacks."""
    idle = [
        name
        for name in config.without_effect()
        if name in changed and must_find_key(name).name != name
    ]
    if idle:
        raise ConfigError(
            f"no listener of this broker, or no mechanism that is enabled there, reads "
            f"{', '.join(idle)}"
        )


async def must_find_hosts(old: BrokerConfig, new: BrokerConfig) -> None:
    """A limit for a host without an address would hold for nobody."""
    loop = asyncio.get_running_loop()
    hosts = (
        new.max_connections_per_ip_overrides.keys() - old.max_connections_per_ip_overrides.keys()
    )
    for host in sorted(hosts):
        try:
            await loop.getaddrinfo(host, None)
        except OSError as error:
            raise ConfigError(
                f"max.connections.per.ip.overrides: {host} has no address: {error.strerror}"
            ) from None


def must_keep_cleaning(old: BrokerConfig, new: BrokerConfig) -> None:
    """Threads come and go by steps; none at all is for a restart."""
    before, after = old["log.cleaner.threads"], new["log.cleaner.threads"]
    if after == before:
        return
    if after < 1:
        raise ConfigError("log.cleaner.threads should be at least 1")
    if after < before // 2:
        raise ConfigError(
            f"log.cleaner.threads cannot be reduced to less than half of what it is, {before}"
        )
    if after > before * 2:
        raise ConfigError(
            f"log.cleaner.threads cannot be increased to more than double of what it is, {before}"
        )


def _is_read_only(name: str) -> bool:
    return BROKER_TABLE[name].dynamic == READ_ONLY


def _is_per_broker(name: str) -> bool:
    key = must_find_key(name)
    if key.name != name:
        return key.name not in LISTENER_KEYS
    return key.dynamic == PER_BROKER


def _refused(reason: str, names: list[str]) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: {', '.join(sorted(names))}")
