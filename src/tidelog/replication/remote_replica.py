"""How far another broker's replica of a partition has come, as its leader sees it.

A follower asks for the offset after its last one, so what it asks for is its log end. It is caught
up while it stands at the leader's log end, and for replica.lag.time.max.ms after the last time it
had fetched everything the leader held at its fetch before.
"""

from __future__ import annotations

from typing import Final, Protocol

from tidelog.replication.partition_host import FollowerBroker

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 60)


class NewsListener(Protocol):
    """The follower's fetch session, where it has one."""

    def has_news(self, size_bytes: int) -> None:
        """The partition has grown, or (0 bytes) must be looked at again."""

    def high_watermark_moved(self) -> None: ...


class RemoteReplica:
    __slots__ = (
        "_is_heard",
        "_last_fetch_leader_end_offset",
        "_last_fetch_ms",
        "broker",
        "broker_id",
        "last_caught_up_ms",
        "listener",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker: FollowerBroker) -> None:
        self.broker = broker
        self.broker_id = broker.broker_id
        self.listener: NewsListener | None = None
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = NEVER_MS
        self._is_heard = False  # it has fetched in this epoch
        self._last_fetch_ms = NEVER_MS
        self._last_fetch_leader_end_offset = UNKNOWN_OFFSET

    def new_epoch(self, now_ms: int, leader_end_offset: int, *, in_sync: bool) -> None:
        """The same leader begins a new epoch; it still knows what the follower holds."""
        self.last_caught_up_ms = self._last_fetch_ms = now_ms if in_sync else NEVER_MS
        self._is_heard = False
        self._last_fetch_leader_end_offset = leader_end_offset

    def begin(self, now_ms: int, *, in_sync: bool) -> None:
        """A new leader knows nothing of its followers; those in sync get the whole lag time."""
        self.last_caught_up_ms = now_ms if in_sync else NEVER_MS

    def note_fetch(
        self, offset: int, log_start_offset: int, now_ms: int, leader_end_offset: int
    ) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self._last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self._is_heard = True
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self._last_fetch_ms = now_ms
        self._last_fetch_leader_end_offset = leader_end_offset

    def leader_appended(self, end_offset_before: int, size_bytes: int) -> None:
        if self.log_end_offset == end_offset_before and self._is_heard:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.broker.last_fetch_ms)
        if self.listener is not None:
            self.listener.has_news(size_bytes)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_max_ms
        )
