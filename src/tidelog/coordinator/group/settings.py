"""What the broker's configuration says about groups and offsets."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.config.broker import BrokerConfig

MINUTE_MS = 60_000


class GroupSettings(NamedTuple):
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * MINUTE_MS,
        )
