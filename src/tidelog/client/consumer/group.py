"""What a consumer needs of its group, whichever protocol the group speaks.

`advance` is called by every poll, before records are given out. It does what is due and calls the
listener, never waits for a broker, and says whether the assignment stands. Requests are made by
tasks; `on_news` wakes the poll when one of them has something for `advance`. Heartbeats are a task
too, so they go on while the application works. `polls` knows when the application was last alive;
after max.poll.interval.ms without a poll the heartbeat task leaves the group.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Protocol

from tidelog.client.consumer.offset_commits import Committer

if TYPE_CHECKING:
    from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata
    from tidelog.client.consumer.rebalance_listener import RebalanceListener
    from tidelog.client.consumer.subscription_state import SubscriptionState
    from tidelog.clock import Clock
    from tidelog.config.client import KafkaConfig
    from tidelog.types import TopicPartition

log = logging.getLogger(__name__)

Told = Callable[[Collection["TopicPartition"]], Awaitable[None] | None]
# Calls a method of the listener where and how the application wants it called.
Call = Callable[[Told, Collection["TopicPartition"]], Awaitable[None]]


class PollInterval:
    """How long the application has not polled, and for how long it need not."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self.maximum_s = config.seconds("max.poll.interval.ms")
        # A poll that waits for records counts as polling all the time.
        self.is_waiting = False
        self._group_id = config.text("group.id")
        self._clock = clock
        self._polled_at = clock.monotonic()

    def polled(self) -> None:
        self._polled_at = self._clock.monotonic()

    def is_over(self, now: float) -> bool:
        """Asked before each heartbeat. If so, it is logged, and the consumer has to leave."""
        if self.is_waiting:
            self._polled_at = now
        idle_s = now - self._polled_at
        if idle_s <= self.maximum_s:
            return False
        log.warning(
            "group %s: no poll for %.1f s (max.poll.interval.ms); the consumer leaves",
            self._group_id,
            idle_s,
        )
        return True

    def pause_s(self, due_s: float, now: float) -> float:
        """Until something that is due in `due_s`, but not beyond the end of the interval."""
        return min(due_s, max(self._polled_at + self.maximum_s - now, 0.001))


class Group(Committer, Protocol):
    polls: PollInterval

    @property
    def needs_attention(self) -> bool:
        """Whether `advance` has something to do. Any thread may ask."""

    async def advance(self) -> bool: ...

    def subscription_changed(self) -> None: ...

    def metadata_changed(self) -> None: ...

    def enforce_rebalance(self, reason: str) -> None: ...

    def group_metadata(self) -> ConsumerGroupMetadata: ...

    async def leave(self, timeout_s: float) -> None:
        """Tells the listener that the partitions go, and the broker that the member goes."""

    async def close(self) -> None:
        """Ends the tasks."""


class Listeners:
    """Tells the subscription's listener, if there is one and it is about any partitions."""

    def __init__(self, subscription: SubscriptionState, call: Call) -> None:
        self._subscription = subscription
        self._call = call

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        log.info("assigned: %s", _names(partitions))
        if (listener := self._listener()) is not None:
            await self._call(listener.on_partitions_assigned, sorted(partitions))

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        log.info("revoked: %s", _names(partitions))
        if (listener := self._listener()) is not None:
            await self._call(listener.on_partitions_revoked, sorted(partitions))

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        log.info("lost: %s", _names(partitions))
        if (listener := self._listener()) is not None:
            await self._call(listener.on_partitions_lost, sorted(partitions))

    def _listener(self) -> RebalanceListener | None:
        return self._subscription.listener


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "nothing"
