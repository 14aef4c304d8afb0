"""Bounds the memory that connections hold, and cannot deadlock.

A connection holds the request bytes it has kept (a partial frame, frames that wait for an earlier
answer) and the answer bytes it has queued. Like Kafka's `queued.max.request.bytes` pool this one
refuses reads, never writes; unlike it, memory is counted as bytes arrive and not as they are
announced.

While `used` is above `limit`
- a connection that holds less than SMALL_BYTES reads on, up to SMALL_BYTES, so that small
  requests are served whatever the others do;
- one connection, the favoured one, reads on to the end of its frame;
- the others are parked: their sockets are not watched. All are woken when `used` is back within
  the limit.

So used <= limit + SMALL_BYTES * connections + one frame + the answers to requests in hand.

Why no deadlock: memory comes back when a frame is complete (it is handled at once), when queued
answers leave, and when a connection closes. Frames of parked connections cannot complete, but
there is always a favoured one among them that can; when it is done or gone, the favour passes to
the next in order of parking. A peer cannot sit on the favour, nor on queued answers:
`evict_stalled` closes whoever holds SMALL_BYTES or more and has not moved a byte for `stall`, and
a favoured one that did not finish within `favour`. Parked connections are not to blame for
standing still and are spared.

Touched only by the thread of its processor; each processor has an equal share of the broker's
bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from tidelog.network.settings import KIB

SMALL_BYTES: Final = 16 * KIB


class MemoryHolder(Protocol):
    held_bytes: int
    last_active: float

    def wake(self) -> None:
        """Read on: you are no longer parked. The time spent parked is not yours."""

    def waits_for_peer(self) -> bool:
        """Only the peer can make it move: it may be read (not parked), or answers are unsent."""

    def evict(self) -> None: ...


class MemoryPool:
    __slots__ = (
        "_favour_seconds",
        "_favoured",
        "_favoured_at",
        "_parked",
        "_stall_seconds",
        "limit",
        "used",
    )

    def __init__(self, limit: int, stall_ms: int, favour_ms: int) -> None:
        self.limit = limit
        self.used = 0  # sum of held_bytes of all connections
        self._stall_seconds = stall_ms / 1000
        self._favour_seconds = favour_ms / 1000
        self._parked: dict[MemoryHolder, None] = {}  # in order of parking; never the favoured one
        self._favoured: MemoryHolder | None = None
        self._favoured_at = 0.0

    def allowance(self, holder: MemoryHolder, now: float) -> int | None:
        """Asked before a read while memory is short: how many bytes; 0 = parked, None = any."""
        if holder is self._favoured:
            return None
        if holder.held_bytes < SMALL_BYTES:
            return SMALL_BYTES - holder.held_bytes
        if self._favoured is None:
            self._favour(holder, now)
            return None
        self._parked[holder] = None
        return 0

    def hold(self, holder: MemoryHolder, held_bytes: int, now: float) -> None:
        """What the holder holds has changed."""
        was_short = self.used > self.limit
        self.used += held_bytes - holder.held_bytes
        holder.held_bytes = held_bytes
        if not was_short:
            return
        if self.used <= self.limit:
            self._favoured = None
            self._wake_all()
        elif held_bytes < SMALL_BYTES:
            if holder in self._parked:
                del self._parked[holder]
                holder.wake()
            if holder is self._favoured:
                self._pass_favour(now)

    def leave(self, holder: MemoryHolder, now: float) -> None:
        """The connection is closed."""
        self._parked.pop(holder, None)
        self.hold(holder, 0, now)
        if holder is self._favoured:
            self._pass_favour(now)

    def evict_stalled(self, holders: Iterable[MemoryHolder], now: float) -> None:
        """Called about once a second."""
        if self._favoured is not None and not self._favoured.waits_for_peer():
            self._pass_favour(now)
        for holder in holders:
            if self.used <= self.limit:
                return
            if holder.held_bytes >= SMALL_BYTES and self._is_stalled(holder, now):
                holder.evict()

    def _is_stalled(self, holder: MemoryHolder, now: float) -> bool:
        if not holder.waits_for_peer():
            return False
        if holder is self._favoured and now - self._favoured_at > self._favour_seconds:
            return True
        return now - holder.last_active > self._stall_seconds

    def _favour(self, holder: MemoryHolder, now: float) -> None:
        self._favoured = holder
        self._favoured_at = now

    def _pass_favour(self, now: float) -> None:
        self._favoured = None
        if self._parked:
            holder = next(iter(self._parked))
            del self._parked[holder]
            self._favour(holder, now)
            holder.wake()

    def _wake_all(self) -> None:
        parked = list(self._parked)
        self._parked.clear()
        for holder in parked:
            holder.wake()
