"""A consumer group's configuration (KIP-848): its own overrides over the broker's values.

The broker's group.consumer.min.* and group.consumer.max.* bound what a group may have.

Not done: keys of share groups and streams groups, which are not served, and Kafka 4.3's
consumer.assignment.interval.ms: partitions are assigned at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError, ConfigTable, ConfigType, Key, at_least

HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"

GROUP_TABLE: Final = ConfigTable(
    (
        Key(
            HEARTBEAT_INTERVAL,
            ConfigType.INT,
            5_000,
            "Heartbeat interval given to members of the group.",
            valid=at_least(1),
            synonyms=(("group.consumer.heartbeat.interval.ms", 1),),
        ),
        Key(
            SESSION_TIMEOUT,
            ConfigType.INT,
            45_000,
            "Silence after which a member of the group is removed.",
            valid=at_least(1),
            synonyms=(("group.consumer.session.timeout.ms", 1),),
        ),
    )
)


class GroupConfig(NamedTuple):
    heartbeat_interval_ms: int
    session_timeout_ms: int


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """Raises ConfigError where the overrides are not valid, together or with the broker's keys."""
    values = {key.name: broker.get_int(key.synonyms[0][0]) for key in GROUP_TABLE}
    for name, text in overrides.items():
        key = GROUP_TABLE.get(name)
        if key is None:
            raise ConfigError(f"Unknown group config name: {name}")
        value = key.parse(text)
        assert isinstance(value, int), name
        low = broker.get_int(f"group.{name.replace('consumer.', 'consumer.min.')}")
        high = broker.get_int(f"group.{name.replace('consumer.', 'consumer.max.')}")
        if not low <= value <= high:
            raise ConfigError(f"{name} must be between {low} and {high}, but it is {value}")
        values[name] = value
    if values[HEARTBEAT_INTERVAL] >= values[SESSION_TIMEOUT]:
        raise ConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")
    return GroupConfig(values[HEARTBEAT_INTERVAL], values[SESSION_TIMEOUT])
