"""What the broker's configuration says about groups and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tidelog.config.broker import BrokerConfig

MINUTE_MS = 60_000


class MigrationPolicy(Enum):
    """Which groups may go over to the other protocol while they have members."""

    DISABLED = "DISABLED"
    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"
    BIDIRECTIONAL = "BIDIRECTIONAL"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerGroupSettings(NamedTuple):
    """Of the consumer protocol (KIP-848)."""

    is_enabled: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    assignors: Sequence[str]  # the default first
    migration_policy: MigrationPolicy
    regex_refresh_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> ConsumerGroupSettings:
        return cls(
            is_enabled="consumer" in config["group.coordinator.rebalance.protocols"],
            session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
            heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
            max_size=config.get_int("group.consumer.max.size"),
            assignors=config["group.consumer.assignors"],
            migration_policy=MigrationPolicy(
                config.get_str("group.consumer.migration.policy").upper()
            ),
            regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
        )


class GroupSettings(NamedTuple):
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    consumer: ConsumerGroupSettings

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * MINUTE_MS,
            consumer=ConsumerGroupSettings.of(config),
        )
