"""What the broker's configuration says about transactions."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.config.broker import BrokerConfig


class TransactionSettings(NamedTuple):
    max_timeout_ms: int
    transactional_id_expiration_ms: int
    verifies_partitions: bool

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
            verifies_partitions=bool(config["transaction.partition.verification.enable"]),
        )
