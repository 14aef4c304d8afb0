"""What an application hears of the partitions it is given and loses.

All three are called inside `poll` (or `close`, `unsubscribe`), never between two polls, and may be
plain methods or coroutines. `on_partitions_revoked` is the place to commit, because the partitions
are still this consumer's. `on_partitions_lost` is called instead when somebody else may have them
already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from inspect import isawaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.types import TopicPartition


class RebalanceListener:
    """Derive from it and override what is of interest."""

    def on_partitions_assigned(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """`partitions` have come in addition to those that stayed."""
        return None

    def on_partitions_revoked(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """`partitions` are about to go to other members."""
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """`partitions` are gone; as if revoked unless overridden."""
        return self.on_partitions_revoked(partitions)


async def settled(called: Awaitable[None] | None) -> None:
    """Waits for a listener that is a coroutine."""
    if isawaitable(called):
        await called
