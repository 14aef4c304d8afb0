"""Which sessions there are, and when their clients have been silent for too long.

Deadlines lie in buckets of a tenth of a second, as in ZooKeeper's ExpiryQueue: hearing from a
client moves its session to a later bucket, and a tick looks at no session but those that are due.

The time here is the server's own: it stands still while the server does (a machine that slept, a
process that was stopped). Silence that the server could not have heard does not count, and the
clients get their whole timeout again after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from tidelog.clock import Clock

TICK_S: Final = 0.1
LONGEST_STEP_S: Final = 1.0  # of the server's time between two ticks


class Connection(Protocol):
    def close(self) -> None: ...


class Session:
    """Lives in the journal too: id, password and the timeout that it was opened with."""

    __slots__ = (
        "after_writes",
        "connection",
        "id",
        "is_closing",
        "password",
        "tick_due",
        "timeout_ms",
        "writes_under_way",
    )

    def __init__(self, id: int, timeout_ms: int, password: bytes) -> None:
        self.id = id
        self.timeout_ms = timeout_ms
        self.password = password
        self.connection: Connection | None = None  # the latest; an older one has been closed
        self.is_closing = False  # takes no more requests
        self.writes_under_way = 0
        self.after_writes: Callable[[], None] | None = None  # called when there are none left
        self.tick_due = 0

    def write_is_done(self) -> None:
        self.writes_under_way -= 1
        if not self.writes_under_way and self.after_writes is not None:
            then, self.after_writes = self.after_writes, None
            then()


class SessionTracker:
    """Touched only on the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_s = clock.monotonic()  # the clock, when it was last read
        self._time_s = 0.0  # the server's
        self._buckets: dict[int, dict[Session, None]] = {}
        self._tick = 0
        self.sessions: dict[int, Session] = {}

    def add(self, session: Session) -> None:
        self.sessions[session.id] = session
        self.touch(session)

    def touch(self, session: Session) -> None:
        """Its client was heard. One that is gone stays gone."""
        if session.id not in self.sessions:
            return
        self._advance()
        tick_due = int((self._time_s + session.timeout_ms / 1000) / TICK_S) + 1
        if tick_due != session.tick_due:
            self._forget_deadline(session)
            session.tick_due = tick_due
            self._buckets.setdefault(tick_due, {})[session] = None

    def remove(self, session: Session) -> None:
        self._forget_deadline(session)
        self.sessions.pop(session.id, None)

    def due(self) -> list[Session]:
        """Those whose time is over since this was last asked."""
        self._advance()
        tick = int(self._time_s / TICK_S)
        found: list[Session] = []
        for passed in range(self._tick + 1, tick + 1):
            found += self._buckets.pop(passed, ())
        self._tick = tick
        return found

    def _advance(self) -> None:
        now = self._clock.monotonic()
        self._time_s += min(now - self._read_s, LONGEST_STEP_S)
        self._read_s = now

    def _forget_deadline(self, session: Session) -> None:
        bucket = self._buckets.get(session.tick_due)
        if bucket is not None:
            bucket.pop(session, None)
            if not bucket:
                del self._buckets[session.tick_due]
