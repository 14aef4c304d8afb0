"""How much bandwidth replicas that catch up may take (KIP-73): a rate, and whom it holds for.

    leader.replication.throttled.rate         what this broker sends, to replicas named by
    leader.replication.throttled.replicas     their topic as partition:broker of the leader
    follower.replication.throttled.rate       what this broker fetches, of replicas named by
    follower.replication.throttled.replicas   their topic as partition:broker of the follower

Everything that throttled replicas are sent counts, but only those that are not in sync are held
back: a replica in sync must stay so. Nothing is sent in parts: what is let through may go over the
rate, and then nothing is until the average over the window is below it again.

The average is Kafka's. A window of replication.quota.window.num samples, of
replication.quota.window.size.seconds each, slides along; what it holds is divided by the time since
its oldest sample began, and by the length of one sample at least.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tidelog.config.definition import LONG_MAX

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.topic import LogConfig
    from tidelog.replication.partition import Partition

UNLIMITED: Final = LONG_MAX
ALL_REPLICAS: Final = "*"


class ReplicationQuota:
    """Touched only on the broker loop."""

    __slots__ = ("_clock", "_sample_count", "_sample_s", "_samples", "_total_bytes", "bytes_per_s")

    def __init__(self, clock: Clock, *, sample_count: int, sample_s: int) -> None:
        self._clock = clock
        self._sample_count = sample_count
        self._sample_s = sample_s
        self._samples: deque[list[float]] = deque()  # [when it began, bytes], oldest first
        self._total_bytes = 0.0  # of all samples
        self.bytes_per_s = UNLIMITED

    def record(self, size_bytes: int) -> None:
        now = self._clock.monotonic()
        self._drop_old(now)
        if not self._samples or now - self._samples[-1][0] >= self._sample_s:
            self._samples.append([now, 0])
        self._samples[-1][1] += size_bytes
        self._total_bytes += size_bytes

    @property
    def is_exceeded(self) -> bool:
        if self.bytes_per_s == UNLIMITED:
            return False
        now = self._clock.monotonic()
        self._drop_old(now)
        return self._total_bytes > self.bytes_per_s * self._window_s(now)

    def delay_s(self) -> float:
        """Until it is not exceeded any more, if nothing is recorded until then."""
        if not self.is_exceeded:
            return 0.0
        now = self._clock.monotonic()
        expiry_s = self._samples[0][0] + self._sample_count * self._sample_s - now
        if not self.bytes_per_s:
            return expiry_s
        return min(self._total_bytes / self.bytes_per_s - self._window_s(now), expiry_s)

    def _window_s(self, now: float) -> float:
        elapsed_s = now - self._samples[0][0] if self._samples else 0.0
        return max(elapsed_s, self._sample_s)

    def _drop_old(self, now: float) -> None:
        oldest = now - self._sample_count * self._sample_s
        while self._samples and self._samples[0][0] <= oldest:
            self._total_bytes -= self._samples.popleft()[1]


class ReplicationThrottle:
    """One direction: this broker as a leader, or as a follower."""

    __slots__ = ("_broker_id", "_replicas_of", "quota")

    def __init__(
        self,
        quota: ReplicationQuota,
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

    def _quota(self, config: BrokerConfig) -> ReplicationQuota:
        return ReplicationQuota(
            self._clock,
            sample_count=config.get_int("replication.quota.window.num"),
            sample_s=config.get_int("replication.quota.window.size.seconds"),
        )

    def configure(self, config: BrokerConfig) -> None:
        """The rates may change while the broker runs."""
        self.leader.quota.bytes_per_s = config.get_int("leader.replication.throttled.rate")
        self.follower.quota.bytes_per_s = config.get_int("follower.replication.throttled.rate")


@lru_cache(maxsize=256)
def _partitions_on(named: tuple[str, ...], broker_id: int) -> frozenset[int]:
    replicas = (replica.split(":") for replica in named if ":" in replica)
    return frozenset(int(index) for index, broker in replicas if int(broker) == broker_id)
