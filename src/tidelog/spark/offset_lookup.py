"""The driver's questions to the cluster: which partitions there are, and which offsets they hold.

A topic that is not there is asked for `fetchOffset.numRetries` times, `fetchOffset.retryIntervalMs`
apart, and then UnknownTopic is raised; asking never creates it. A broker that cannot be reached is
waited for by the client itself (`kafka.default.api.timeout.ms`, 60 s).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

from tidelog.client.blocking.cluster import BlockingCluster
from tidelog.client.consumer.offset_lookup import NO_OFFSET
from tidelog.client.errors import BrokerRefused, UnknownTopic, refused
from tidelog.spark.offset_ranges import require_all
from tidelog.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    GlobalTimestamp,
    OffsetLimit,
    PartitionOffsets,
    PartitionTimestamps,
    SpecificOffsets,
    TopicIds,
    Word,
    partitions_text,
)
from tidelog.spark.options import start_too_late
from tidelog.spark.subscription import KnownTopic
from tidelog.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.network.metadata import TopicView
    from tidelog.spark.options import SourceOptions

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class OffsetLookup:
    """For one driver process; close it."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: BlockingCluster | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options
        self.cluster = BlockingCluster(options.driver_config()) if cluster is None else cluster
        self._sleep = sleep

    def close(self) -> None:
        self.cluster.close()

    def assigned(self, may_be_gone: Collection[str] = ()) -> set[TopicPartition]:
        """The partitions to read. Topics of `may_be_gone` are left out when they are not there."""

        def ask(is_last: bool) -> set[TopicPartition]:
            return self._choose(may_be_gone if is_last else ())

        return self._with_retries(ask)

    def _choose(self, may_be_gone: Collection[str]) -> set[TopicPartition]:
        subscription = self.options.subscription
        assert subscription is not None, "only segment files are read without a subscription"
        names = subscription.topic_names()
        views = self.cluster.topics(None if names is None else sorted(names))
        for name in names or ():
            if not views[name].exists and name not in may_be_gone:
                raise refused(f"topic {name}", views[name].error_code)
        return subscription.choose(_known(views.values()))

    def topic_ids(self) -> TopicIds:
        """Of the topics that metadata has told of, as it was last asked."""
        return {
            view.name: view.topic_id
            for view in self.cluster.known_topics()
            if view.exists and view.topic_id != ZERO_UUID
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        return self.cluster.earliest_offsets(partitions)

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        return self.cluster.latest_offsets(partitions)

    def still_there(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of them that fresh metadata shows."""
        wanted = set(partitions)
        views = self.cluster.topics({partition.topic for partition in wanted})
        return {
            partition
            for partition in wanted
            if partition.partition in views[partition.topic].partitions
        }

    def latest_not_before(
        self, known: PartitionOffsets, partitions: set[TopicPartition]
    ) -> PartitionOffsets:
        """Latest offsets. Such that lie before a known one are asked for again: a new leader may
        lag for a moment. They are given as they are in the end."""
        latest = self.latest(partitions)
        for _ in range(self.options.fetch_offset_tries - 1):
            behind = [row for row, offset in latest.items() if offset < known.get(row, 0)]
            if not behind:
                break
            logger.warning("latest offsets of %s went back", partitions_text(behind))
            self._sleep(self.options.fetch_offset_retry_interval_ms / 1000)
            latest = self.latest(partitions)
        return latest

    def resolve_start(
        self, limit: OffsetLimit, partitions: set[TopicPartition]
    ) -> PartitionOffsets:
        found = self._resolve(limit, partitions, "starting")
        missing = [partition for partition, offset in found.items() if offset == NO_OFFSET]
        if missing and not self.options.latest_if_no_match:
            raise start_too_late(limit, missing)
        return {**found, **self.latest(missing)}

    def resolve_end(self, limit: OffsetLimit, partitions: set[TopicPartition]) -> PartitionOffsets:
        found = self._resolve(limit, partitions, "ending")
        missing = [partition for partition, offset in found.items() if offset == NO_OFFSET]
        return {**found, **self.latest(missing)}

    def _resolve(
        self, limit: OffsetLimit, partitions: set[TopicPartition], end: str
    ) -> PartitionOffsets:
        """NO_OFFSET for partitions without a record as late as the timestamp."""
        if limit is Word.EARLIEST:
            return self.earliest(partitions)
        if limit is Word.LATEST:
            return self.latest(partitions)
        if isinstance(limit, SpecificOffsets):
            require_all(f"{end}Offsets", limit.offsets, partitions)
            offsets = limit.offsets
            earliest = self.earliest(_with_offset(offsets, EARLIEST_OFFSET))
            return {**offsets, **earliest, **self.latest(_with_offset(offsets, LATEST_OFFSET))}
        if isinstance(limit, PartitionTimestamps):
            require_all(f"{end}OffsetsByTimestamp", limit.timestamps_ms, partitions)
            wanted = limit.timestamps_ms
        else:
            assert isinstance(limit, GlobalTimestamp), limit
            wanted = dict.fromkeys(partitions, limit.timestamp_ms)
        return {row: found.offset for row, found in self.cluster.list_offsets(wanted).items()}

    def _with_retries(self, ask: Callable[[bool], Answer]) -> Answer:
        tries = self.options.fetch_offset_tries
        for left in range(tries - 1, -1, -1):
            try:
                return ask(left == 0)
            except UnknownTopic as problem:
                if left == 0:
                    raise
                logger.warning("%s; asking again", problem)
                self._sleep(self.options.fetch_offset_retry_interval_ms / 1000)
            except BrokerRefused as problem:
                if left == 0 or not problem.code.retriable:
                    raise
                self._sleep(self.options.fetch_offset_retry_interval_ms / 1000)
        raise AssertionError(tries)


def _known(views: Iterable[TopicView]) -> dict[str, KnownTopic]:
    return {
        view.name: KnownTopic(view.partitions, view.is_internal) for view in views if view.exists
    }


def _with_offset(offsets: PartitionOffsets, wanted: int) -> list[TopicPartition]:
    return [partition for partition, offset in offsets.items() if offset == wanted]
