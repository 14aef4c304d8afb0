"""Waiting between tries: each wait is twice the one before, within bounds, with some chance in it.

A `Patience` is made when work begins. `within` bounds a try; `wait_after` waits before the next one
and gives up with the last error when the time allowed has passed. How long to wait before
connecting again is not its concern: each broker has a backoff for that (`peer.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
)
from tidelog.clock import pause

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.config.client import KafkaConfig

T = TypeVar("T")

JITTER: Final = 0.2
# Not the global one: the application may seed it or rely on its state, and this is another thread.
_chance: Final = random.SystemRandom()


class Backoff:
    """Kafka's ExponentialBackoff: base 2, 20 % either way."""

    __slots__ = ("attempt", "first_ms", "longest_ms")

    def __init__(self, first_ms: int, longest_ms: int) -> None:
        self.first_ms = first_ms
        self.longest_ms = max(first_ms, longest_ms)
        self.attempt = 0

    def next_s(self) -> float:
        wait_s = self.wait_s(self.attempt)
        self.attempt += 1
        return wait_s

    def wait_s(self, attempt: int) -> float:
        """The wait before retry number `attempt`, counted from 0."""
        wait_ms = min(self.first_ms << min(attempt, 30), self.longest_ms)
        return wait_ms * _chance.uniform(1 - JITTER, 1 + JITTER) / 1000

    def reset(self) -> None:
        self.attempt = 0

    @classmethod
    def of(cls, config: KafkaConfig, key: str) -> Backoff:
        """`key` is retry.backoff.ms or the like; the longest wait has a .max in it."""
        return cls(config.integer(key), config.integer(key.replace(".ms", ".max.ms")))


class Patience:
    """`what` names the work, `limit` what bounds it, in errors."""

    __slots__ = ("_backoff", "_clock", "_limit", "_limit_s", "_timer", "_what", "deadline")

    def __init__(
        self,
        what: str,
        limit: str,
        limit_s: float,
        *,
        backoff: Backoff,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._what = what
        self._limit = limit
        self._limit_s = limit_s
        self._backoff = backoff
        self._clock = clock
        self._timer = timer
        self.deadline = clock.monotonic() + limit_s  # on the monotonic clock

    @property
    def left_s(self) -> float:
        """Seconds, 0 when the time is up."""
        return max(0.0, self.deadline - self._clock.monotonic())

    @property
    def is_exhausted(self) -> bool:
        return self.left_s <= 0

    def progressed(self) -> None:
        """The work got further, so the backoff and the time limit begin anew."""
        self._backoff.reset()
        self.deadline = self._clock.monotonic() + self._limit_s

    async def wait_after(self, problem: ClientError) -> None:
        """Waits before the next try, or raises when the time is up."""
        left_s = self.left_s
        if left_s <= 0:
            raise self.given_up(problem) from problem
        await pause(self._timer, min(self._backoff.next_s(), left_s))
        if self.is_exhausted:
            raise self.given_up(problem) from problem

    async def within(self, work: Awaitable[T], last: ClientError | None = None) -> T:
        """Bounds a try. `last`, the error of the try before, says more than that this one took too
        long."""
        try:
            async with asyncio.timeout(self.left_s):
                return await work
        except TimeoutError as problem:
            raise last or RequestTimedOut("no answer in time") from problem

    def given_up(self, problem: ClientError) -> ClientError:
        if isinstance(problem, UnknownTopic | OffsetOutOfRange):
            return problem
        error = RequestTimedOut(
            f"{self._what}: gave up after {round(self._limit_s * 1000)} ms ({self._limit}): "
            f"{problem}",
            problem.code,
        )
        error.broker_message = problem.broker_message
        return error


def may_pass(problem: ClientError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(problem, ConnectionFailed | RequestTimedOut):
        return True
    return problem.code.retriable
