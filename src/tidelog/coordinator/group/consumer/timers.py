"""The time limits of a member of a consumer group.

    session    silence, for everybody
    rebalance  to give up partitions, for members of the consumer protocol
    join       to rejoin after it was told to, for classic members
    sync       from JoinGroup to SyncGroup, for classic members

Whoever lets one pass is removed. They are in memory only: a restart begins them anew.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.expiration import Expiration

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer, TimerHandle


class Limit(Enum):
    """The values are the reasons given in the log."""

    REBALANCE = "it did not give up its partitions in time"
    JOIN = "it did not rejoin in time"
    SYNC = "it did not sync in time"


class MemberTimers:
    """Cancelled when the member goes."""

    __slots__ = ("_clock", "_expired", "_running", "_session", "_timer")

    def __init__(self, clock: Clock, timer: Timer, expired: Callable[[str], object]) -> None:
        self._clock = clock
        self._timer = timer
        self._expired = expired  # called with the reason
        self._session: Expiration | None = None
        self._running: dict[Limit, TimerHandle] = {}

    def heard_from(self, session_timeout_ms: int) -> None:
        if self._session is None:
            self._session = Expiration(
                self._clock, self._timer, partial(self._expired, "its session timed out")
            )
        self._session.push_back(session_timeout_ms)

    def start(self, limit: Limit, timeout_ms: int) -> None:
        """Anew if it runs."""
        self.stop(limit)
        self._running[limit] = self._timer.call_later(timeout_ms / 1000, partial(self._over, limit))

    def start_if_idle(self, limit: Limit, timeout_ms: int) -> None:
        if limit not in self._running:
            self.start(limit, timeout_ms)

    def stop(self, limit: Limit) -> None:
        handle = self._running.pop(limit, None)
        if handle is not None:
            handle.cancel()

    def cancel(self) -> None:
        if self._session is not None:
            self._session.cancel()
        for handle in self._running.values():
            handle.cancel()
        self._running.clear()

    def _over(self, limit: Limit) -> None:
        del self._running[limit]
        self._expired(limit.value)
