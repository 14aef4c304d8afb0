"""How much bandwidth replicas that catch up may take (KIP-73): a rate, and whom it holds for.

    leader.replication.throttled.rate         what this broker sends, to replicas named by
    leader.replication.throttled.replicas     their topic as partition:broker of the leader
    follower.replication.throttled.rate       what this broker fetches, of replicas named by
    follower.replication.throttled.replicas   their topic as partition:broker of the follower

Everything that throttled replicas are sent counts, but only those that are not in sync are held
back: a replica in sync must stay so. The rate is Kafka's average over a window of
replication.quota.window.num samples, of replication.quota.window.size.seconds each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tidelog.rate import WindowedRate

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.topic import LogConfig
    from tidelog.replication.partition import Partition

ALL_REPLICAS: Final = "*"


class ReplicationThrottle:
    """One direction: this broker as a leader, or as a follower."""

    __slots__ = ("_broker_id", "_replicas_of", "quota")

    def __init__(
        self,
        quota: WindowedRate,
        broker_id: int,
        replicas_of: Callable[[LogConfig], tuple[str, ...]],
    ) -> None:
        self.quota = quota
        self._broker_id = broker_id
        self._replicas_of = replicas_of

    def covers(self, partition: Partition) -> bool:
        """Whether what is sent of the partition counts."""
        named = self._replicas_of(partition.log.config)
        if not named:
            return False
        index = partition.topic_partition.partition
        return named == (ALL_REPLICAS,) or index in _partitions_on(named, self._broker_id)

    def withholds(self, partition: Partition) -> bool:
        """Whether a replica that is not in sync has to wait."""
        return self.covers(partition) and self.quota.is_exceeded


class ReplicationThrottles:
    """Both directions of one broker."""

    def __init__(self, config: BrokerConfig, broker_id: int, clock: Clock) -> None:
        self._clock = clock
        self.leader = ReplicationThrottle(
            self._quota(config),
            broker_id,
            lambda of_topic: of_topic.leader_replication_throttled_replicas,
        )
        self.follower = ReplicationThrottle(
            self._quota(config),
            broker_id,
            lambda of_topic: of_topic.follower_replication_throttled_replicas,
        )
        self.configure(config)

    def _quota(self, config: BrokerConfig) -> WindowedRate:
        return WindowedRate(
            self._clock,
            sample_count=config.get_int("replication.quota.window.num"),
            sample_s=config.get_int("replication.quota.window.size.seconds"),
        )

    def configure(self, config: BrokerConfig) -> None:
        """The rates may change while the broker runs."""
        self.leader.quota.rate = config.get_int("leader.replication.throttled.rate")
        self.follower.quota.rate = config.get_int("follower.replication.throttled.rate")


@lru_cache(maxsize=256)
def _partitions_on(named: tuple[str, ...], broker_id: int) -> frozenset[int]:
    replicas = (replica.split(":") for replica in named if ":" in replica)
    return frozenset(int(index) for index, broker in replicas if int(broker) == broker_id)
