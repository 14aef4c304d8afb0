"""A topic's configuration: its own overrides over the broker's values of the synonymous keys.

The rows are in `tidelog.config.keys.topic`. `topic_values` gives all keys as DescribeConfigs shows
them, `log_config` the same as the `LogConfig` that the log works with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import LONG_MAX, ConfigError, ConfigTable, Value
from tidelog.config.keys.topic import KEYS

TOPIC_TABLE: Final = ConfigTable(KEYS)

# The broker's own reading of synonyms that come in several units.
DERIVED: Final = {
    "retention.ms": "log_retention_ms",
    "segment.ms": "log_roll_ms",
    "segment.jitter.ms": "log_roll_jitter_ms",
    "flush.ms": "log_flush_interval_ms",
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a partition's log needs to know of its topic's configuration."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    max_message_bytes: int = 1_048_588
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    compact: bool = False
    delete: bool = True
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    # Both bounds already take message.timestamp.difference.max.ms into account.
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = LONG_MAX
    message_downconversion_enable: bool = True
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()

    @property
    def max_segment_ms(self) -> int:
        """Age at which the active segment rolls; compaction must reach records in time."""
        if self.compact:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


def validate_overrides(
    overrides: Mapping[str, str | None], broker: BrokerConfig | None = None
) -> None:
    """Raises ConfigError if a topic may not have these overrides."""
    empty = [name for name, text in overrides.items() if text is None]
    if empty:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(empty)}")
    texts = {name: text for name, text in overrides.items() if text is not None}
    topic_values(broker or BrokerConfig(), texts)


def topic_values(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Every topic key with its typed value; raises ConfigError if the overrides are not valid."""
    for name in overrides:
        if name not in TOPIC_TABLE:
            nearest = TOPIC_TABLE.nearest(name)
            hint = f"; did you mean {nearest}?" if nearest else ""
            raise ConfigError(f"Unknown topic config name: {name}{hint}")
    values = {key.name: broker_default(broker, key.name) for key in TOPIC_TABLE}
    values.update(TOPIC_TABLE.parse(overrides))
    check_values(values)
    return values


def broker_default(broker: BrokerConfig, name: str) -> Value:
    """The value of a topic key that the topic does not override."""
    if name in DERIVED:
        value: Value = getattr(broker, DERIVED[name])
        return value
    key = TOPIC_TABLE[name]
    return broker.values()[key.synonyms[0][0]] if key.synonyms else key.default


def check_values(values: Mapping[str, Any]) -> None:
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError(
            f"min.compaction.lag.ms ({low}) must not be above max.compaction.lag.ms ({high})"
        )
    for key in TOPIC_TABLE:
        if key.refuses(values[key.name]):
            raise ConfigError(f"{key.name}: {key.effect.reason}")


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    values: dict[str, Any] = topic_values(broker, overrides)
    policy = values["cleanup.policy"]
    difference = values["message.timestamp.difference.max.ms"]
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if values[name] == LONG_MAX:
            values[name] = difference
    named = {name.replace(".", "_"): value for name, value in values.items()}
    wanted = {field.name: named[field.name] for field in fields(LogConfig) if field.name in named}
    return LogConfig(compact="compact" in policy, delete="delete" in policy, **wanted)
