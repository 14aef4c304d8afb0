"""What fetchers are told: Kafka's replica.* keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig


class FetcherSettings(NamedTuple):
    broker_id: int
    broker_epoch: Callable[[], int]
    fetchers: int  # num.replica.fetchers: towards each leader
    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    response_max_bytes: int
    backoff_ms: int
    socket_timeout_ms: int

    @classmethod
    def of(
        cls, config: BrokerConfig, broker_id: int, broker_epoch: Callable[[], int]
    ) -> FetcherSettings:
        return cls(
            broker_id,
            broker_epoch,
            config.get_int("num.replica.fetchers"),
            config.get_int("replica.fetch.wait.max.ms"),
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.max.bytes"),
            config.get_int("replica.fetch.response.max.bytes"),
            config.get_int("replica.fetch.backoff.ms"),
            config.get_int("replica.socket.timeout.ms"),
        )
