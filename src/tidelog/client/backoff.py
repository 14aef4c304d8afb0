"""Waiting between tries: each wait is twice the one before, within bounds, with some chance in it.

A `Patience` is made when work begins and told of progress; it waits before the next try and gives
up with the last error when the time allowed has passed without progress. After a lost connection
the waits are those of `reconnect.backoff.ms`, after other errors those of `retry.backoff.ms`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from tidelog.client.errors import ClientError, ConnectionFailed, RequestTimedOut, UnknownTopic
from tidelog.client.network.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.clock import Clock
    from tidelog.config.client import ClientConfig

OnWait: TypeAlias = "Callable[[str, ClientError], object]"


def retry_backoff(config: ClientConfig) -> Backoff:
    return Backoff(config.integer("retry.backoff.ms"), config.integer("retry.backoff.max.ms"))


def reconnect_backoff(config: ClientConfig) -> Backoff:
    return Backoff(
        config.integer("reconnect.backoff.ms"), config.integer("reconnect.backoff.max.ms")
    )


class Patience:
    """`what` names the work, `limit_key` the configuration key that bounds it."""

    __slots__ = (
        "_clock",
        "_deadline",
        "_limit_key",
        "_limit_ms",
        "_on_wait",
        "_reconnect",
        "_retry",
        "_sleep",
        "_what",
    )

    def __init__(
        self,
        what: str,
        config: ClientConfig,
        clock: Clock,
        *,
        limit_key: str = "default.api.timeout.ms",
        sleep: Callable[[float], None] = time.sleep,
        on_wait: OnWait | None = None,
    ) -> None:
        self._what = what
        self._on_wait = on_wait
        self._limit_key = limit_key
        self._limit_ms = config.integer(limit_key)
        self._retry = retry_backoff(config)
        self._reconnect = reconnect_backoff(config)
        self._clock = clock
        self._sleep = sleep
        self._deadline = clock.monotonic() + self._limit_ms / 1000

    def progressed(self) -> None:
        self._retry.reset()
        self._reconnect.reset()
        self._deadline = self._clock.monotonic() + self._limit_ms / 1000

    @property
    def is_exhausted(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    def wait_after(self, problem: ClientError) -> None:
        """Sleeps before the next try, or raises when the time is up."""
        left_s = self._deadline - self._clock.monotonic()
        if left_s <= 0:
            raise self._given_up(problem) from problem
        if self._on_wait is not None:
            self._on_wait(self._what, problem)
        backoff = self._reconnect if isinstance(problem, ConnectionFailed) else self._retry
        self._sleep(min(backoff.next_s(), left_s))

    def _given_up(self, problem: ClientError) -> ClientError:
        if isinstance(problem, UnknownTopic):
            return problem
        return RequestTimedOut(
            f"{self._what}: gave up after {self._limit_ms} ms ({self._limit_key}): {problem}",
            problem.code,
        )
