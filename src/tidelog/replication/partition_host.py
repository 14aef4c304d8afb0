"""What the partitions of a broker share: who it is, the time, and what it knows of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.replication.partition import Partition

UNKNOWN_EPOCH: Final = -1

# Asks the controller for the ISR that the partition's leadership proposes.
AlterPartition = Callable[["Partition"], object]


class FollowerBroker:
    """Another broker, as far as it follows partitions that this one leads."""

    __slots__ = ("broker_epoch", "broker_id", "is_alive", "last_fetch_ms")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_EPOCH  # as its last fetch said
        self.is_alive = True  # as the controller last said
        # When any of its fetchers last asked. A session names only what changed, so what it does
        # not name stands where it stood, as of now.
        self.last_fetch_ms = 0

    def note_fetch(self, broker_epoch: int) -> None:
        """One of its fetchers asks, in the life `broker_epoch`; KafkaError if that life is over."""
        if UNKNOWN_EPOCH < broker_epoch < self.broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        self.broker_epoch = broker_epoch


class PartitionHost:
    """Touched only on the broker loop."""

    __slots__ = (
        "_followers",
        "alter_partition",
        "broker_id",
        "clock",
        "may_be_replaced",
        "replica_lag_time_max_ms",
    )

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        alter_partition: AlterPartition,
        *,
        replica_lag_time_max_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.alter_partition = alter_partition
        self.replica_lag_time_max_ms = replica_lag_time_max_ms
        # Whether the session may be over, and another leader elected.
        self.may_be_replaced: Callable[[], bool] = lambda: False
        self._followers: dict[int, FollowerBroker] = {}

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def follower(self, broker_id: int) -> FollowerBroker:
        follower = self._followers.get(broker_id)
        if follower is None:
            follower = self._followers[broker_id] = FollowerBroker(broker_id)
        return follower

    def set_alive(self, broker_ids: set[int]) -> bool:
        """Whether that changes anything."""
        for broker_id in broker_ids:
            self.follower(broker_id)
        changed = False
        for follower in self._followers.values():
            is_alive = follower.broker_id in broker_ids
            changed = changed or follower.is_alive != is_alive
            follower.is_alive = is_alive
        return changed
