"""What this broker does when the controller says what it leads and follows.

A partition that it leads is fetched no more, one that it follows is copied from its leader, and the
coordinators take over and give up the partitions of their topics with it.

A partition whose order fails in a way that nobody expected is led and copied no more, and answered
with KAFKA_STORAGE_ERROR, while the others are obeyed: it is the one error for which a controller,
Kafka's too, has another replica lead. Kafka fails the whole request, and leaves it at that.
Touched only on the broker loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.topic_hosting import LOGS_PER_THREAD_CALL
from tidelog.errors import ErrorCode, KafkaError
from tidelog.replication.partition import Partition, PartitionRegistration
from tidelog.supervisor import attempt
from tidelog.types import NO_LEADER_EPOCH, TopicPartition, Uuid

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.replication.partition_host import PartitionHost
    from tidelog.replication.replica_fetcher_manager import ReplicaFetcherManager

logger = logging.getLogger(__name__)

EPOCH_DURING_DELETE = -2


class WantedPartition(NamedTuple):
    topic_partition: TopicPartition
    topic_id: Uuid
    state: PartitionRegistration


class StoppedPartition(NamedTuple):
    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


class LeadershipChanges:
    def __init__(
        self, broker: Broker, host: PartitionHost, fetchers: ReplicaFetcherManager
    ) -> None:
        self._broker = broker
        self._host = host
        self._fetchers = fetchers
        # Controlled shutdown has begun. Partitions that this broker gave away are not followed,
        # because their new leader would count it in sync again and wait for it after its end.
        self.is_leaving = False
        self._is_stopped = False

    async def apply(
        self, wanted: Sequence[WantedPartition], broker_epoch: int, must_go_on: Callable[[], object]
    ) -> dict[TopicPartition, ErrorCode]:
        """What became of each partition; `broker_epoch` is the life that the order is for.

        There may be thousands, so this is done in slices. `must_go_on` raises a KafkaError when
        the order has become void between two of them; the partitions changed so far stay changed.
        """
        outcomes: dict[TopicPartition, ErrorCode] = {}
        self._broker.logs.expect(each.topic_partition for each in wanted if not each.state.is_new)
        for first in range(0, len(wanted), LOGS_PER_THREAD_CALL):
            batch = wanted[first : first + LOGS_PER_THREAD_CALL]
            await self._make_logs(batch, broker_epoch)
            for each in batch:
                await self._broker.slices.breathe()
                self._must_not_be_stopped()
                must_go_on()
                outcomes[each.topic_partition] = self._outcome(each, broker_epoch)
        self._fetchers.close_idle()
        return outcomes

    async def _make_logs(self, batch: Iterable[WantedPartition], broker_epoch: int) -> None:
        new: list[tuple[TopicPartition, Uuid]] = []
        for each in batch:
            try:
                self._broker.replicas.must_accept(*each, broker_epoch)
            except KafkaError:
                continue  # `_apply` says so
            new.append((each.topic_partition, each.topic_id))
        await self._broker.replicas.make_logs(new)

    def _outcome(self, wanted: WantedPartition, broker_epoch: int) -> ErrorCode:
        outcome = ErrorCode.KAFKA_STORAGE_ERROR

        def apply() -> None:
            nonlocal outcome
            outcome = self._apply(wanted, broker_epoch)

        name = f"the controller's order for {wanted.topic_partition}"
        if attempt(name, apply) is not None:
            attempt(f"giving up {wanted.topic_partition}", partial(self._give_up, wanted))
        return outcome

    def _give_up(self, wanted: WantedPartition) -> None:
        """The order may be done in part, and this broker may lead what the coordinator does not."""
        topic, index = wanted.topic_partition
        hosted = self._broker.replicas.get(topic, index)
        if hosted is not None:
            hosted.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._fetchers.unfollow(hosted)
        coordinator = self._broker.coordinators.runtime_of(topic)
        if coordinator is not None:
            coordinator.resign(index)

    def _apply(self, wanted: WantedPartition, broker_epoch: int) -> ErrorCode:
        try:
            self._broker.replicas.must_accept(*wanted, broker_epoch)
            if wanted.state.leader == self._broker.broker_id:
                self._lead(wanted)
            else:
                self._follow(wanted)
        except KafkaError as error:
            logger.info(
                "not what the controller says",
                extra={
                    "partition": str(wanted.topic_partition),
                    "error": error.code.name,
                    "why": error.message,
                },
            )
            return error.code
        return ErrorCode.NONE

    def _must_not_be_stopped(self) -> None:
        if self._is_stopped:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, "This broker stops.")

    def _lead(self, wanted: WantedPartition) -> None:
        replicas = self._broker.replicas
        hosted = replicas.get(*wanted.topic_partition)
        if hosted is not None:
            self._fetchers.unfollow(hosted)
        partition = replicas.lead(*wanted, self._host)
        if partition.must_flush_before_ack:
            self._flush(partition)
        coordinator = self._broker.coordinators.runtime_of(wanted.topic_partition.topic)
        if coordinator is not None:
            coordinator.lead(partition)
        self._log_change("leading", partition, "partition-leading")

    def _flush(self, partition: Partition) -> None:
        """No append may come to have it flushed, and until then the leader does not count it."""

        def flushed(error: OSError | None) -> None:
            if error is None:
                partition.flushed()

        self._broker.flusher.flush(partition.log, flushed)

    def _follow(self, wanted: WantedPartition) -> None:
        coordinator = self._broker.coordinators.runtime_of(wanted.topic_partition.topic)
        if coordinator is not None:
            coordinator.resign(wanted.topic_partition.partition)
        partition = self._broker.replicas.follow(*wanted)
        is_awaited = not self.is_leaving or self._broker.broker_id in partition.isr
        if partition.leader_id >= 0 and is_awaited:
            self._fetchers.follow(partition)
        else:
            self._fetchers.unfollow(partition)
        self._log_change("following", partition, "partition-following")

    async def stop(
        self, stopped: Iterable[StoppedPartition], must_go_on: Callable[[], object]
    ) -> dict[TopicPartition, ErrorCode]:
        """In slices, as `apply`."""
        outcomes: dict[TopicPartition, ErrorCode] = {}
        for each in stopped:
            await self._broker.slices.breathe()
            self._must_not_be_stopped()
            must_go_on()
            outcomes[each.topic_partition] = self._stop_outcome(each)
        self._fetchers.close_idle()
        return outcomes

    def _stop_outcome(self, stopped: StoppedPartition) -> ErrorCode:
        """As in Kafka, one that fails fails alone."""
        outcome = ErrorCode.UNKNOWN_SERVER_ERROR

        def stop() -> None:
            nonlocal outcome
            outcome = self._stop(*stopped)

        attempt(f"stopping {stopped.topic_partition}", stop)
        return outcome

    def _stop(self, topic_partition: TopicPartition, leader_epoch: int, delete: bool) -> ErrorCode:
        replicas = self._broker.replicas
        partition = replicas.get(*topic_partition)
        if partition is not None:
            is_newer = leader_epoch >= partition.leader_epoch
            if not is_newer and leader_epoch not in (EPOCH_DURING_DELETE, NO_LEADER_EPOCH):
                return ErrorCode.FENCED_LEADER_EPOCH
            self._fetchers.unfollow(partition)
        coordinator = self._broker.coordinators.runtime_of(topic_partition.topic)
        if coordinator is not None:
            coordinator.resign(topic_partition.partition)
        if delete:
            replicas.drop(topic_partition)
        else:
            replicas.stop(topic_partition)
        return ErrorCode.NONE

    def resign_all(self, broker_epoch: int) -> None:
        """The session of this life is over, and others have been elected. What has no other replica
        stays.
        """
        for partition in tuple(self._broker.replicas):
            if partition.leadership is not None:
                partition.resign(broker_epoch)

    def stop_all(self) -> None:
        """The broker stops: what waits for other replicas waits in vain. No order is obeyed after
        that.
        """
        self._is_stopped = True
        self._fetchers.close()
        for partition in tuple(self._broker.replicas):
            partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _log_change(self, what: str, partition: Partition, event: str) -> None:
        logger.info(
            what,
            extra={
                "event": event,
                "partition": str(partition.topic_partition),
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "isr": list(partition.isr),
                "high_watermark": partition.log.high_watermark,
                "log_end_offset": partition.log.log_end_offset,
            },
        )
