"""All fetchers of a broker: num.replica.fetchers towards each leader, made when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.replication.replica_fetcher import FetcherSettings, ReplicaFetcher

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from tidelog.clock import Timer
    from tidelog.network.peer_directory import PeerDirectory
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.partition import Partition
    from tidelog.replication.replication_throttle import ReplicationThrottle
    from tidelog.types import TopicPartition


class ReplicaFetcherManager:
    """Touched only on the broker loop."""

    def __init__(
        self,
        settings: FetcherSettings,
        peers: PeerDirectory,
        flusher: LogFlusher,
        throttle: ReplicationThrottle,
        *,
        loop: asyncio.AbstractEventLoop,
        timer: Timer,
    ) -> None:
        self._settings = settings
        self._peers = peers
        self._flusher = flusher
        self._throttle = throttle
        self._loop = loop
        self._timer = timer
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._of: dict[Partition, ReplicaFetcher] = {}

    def __len__(self) -> int:
        return len(self._of)

    def lags(self) -> Iterator[int]:
        """Of all partitions that are copied here, in records."""
        for fetcher in self._fetchers.values():
            for followed in fetcher.followed:
                yield followed.lag

    @property
    def failed_count(self) -> int:
        """Partitions whose last fetch failed, and which are tried again."""
        return sum(
            followed.failures > 0
            for fetcher in self._fetchers.values()
            for followed in fetcher.followed
        )

    def follow(self, partition: Partition) -> None:
        """Copy the partition from its present leader."""
        self.unfollow(partition)
        number = fetcher_number(partition.topic_partition, self._settings.fetchers)
        key = (partition.leader_id, number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(
                partition.leader_id,
                self._settings,
                self._peers,
                self._flusher,
                self._throttle,
                loop=self._loop,
                timer=self._timer,
            )
        self._of[partition] = fetcher
        fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        fetcher = self._of.pop(partition, None)
        if fetcher is not None:
            fetcher.unfollow(partition)

    def close_idle(self) -> None:
        """After leadership has moved: leaders that are not followed any more."""
        for key in [key for key, fetcher in self._fetchers.items() if not len(fetcher)]:
            self._fetchers.pop(key).close()

    def configure(self, settings: FetcherSettings) -> None:
        """Another number of fetchers: all begin anew."""
        followed = list(self._of)
        self.close()
        self._settings = settings
        for partition in followed:
            self.follow(partition)

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._of.clear()


def fetcher_number(topic_partition: TopicPartition, fetchers: int) -> int:
    """Which fetcher copies a partition; the same on every start."""
    return (crc32(topic_partition.topic.encode()) + topic_partition.partition) % fetchers
