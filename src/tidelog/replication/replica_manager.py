"""The partitions that this broker hosts.

A lone broker hosts them by itself (`host`); in a cluster the controller says which it leads and
which it follows (`lead`, `follow`, `stop`). What has to be done elsewhere when leadership moves
(fetchers, coordinators) is up to the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence, Set

from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.log_manager import LogManager
from tidelog.replication.partition import Partition, PartitionRegistration
from tidelog.replication.partition_host import AlterPartition, PartitionHost
from tidelog.replication.traffic import Traffic
from tidelog.types import NO_LEADER, NO_LEADER_EPOCH, TopicPartition, Uuid

logger = logging.getLogger(__name__)


class ReplicaManager:
    """Owns every `Partition`."""

    def __init__(self, broker_id: int, logs: LogManager) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()  # assigned here, but the log cannot be used
        self.past_traffic = Traffic()  # of partitions that this broker hosts no more
        self.replication_bytes_out = 0  # to followers
        # In a cluster: whether there is such a partition, wherever it is hosted.
        self.is_known: Callable[[str, int], bool] = lambda topic, index: False
        # In a cluster: others must learn of a replica whose log is lost.
        self.went_offline: Callable[[Partition], None] = lambda partition: None

    @property
    def offline(self) -> Set[tuple[str, int]]:
        return self._offline

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def absent_error(self, topic: str, index: int) -> ErrorCode:
        """What a client is told of a partition that `get` does not find."""
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.is_known(topic, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def leader(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it; else the error that a client is to see."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise KafkaError(self.absent_error(topic, index))
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    async def make_logs(self, wanted: Sequence[tuple[TopicPartition, Uuid]]) -> None:
        """Ahead of `host`, `lead` and `follow`, which make those that are missing on the loop: a
        thread makes the folders and files of many. Nobody may host these partitions meanwhile.
        """
        pending = self.logs.pending_logs(wanted)
        if pending.wanted:
            await asyncio.get_running_loop().run_in_executor(None, pending.run)
            self.logs.take_in(pending)

    # A lone broker

    def host(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        *,
        leader_id: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
    ) -> None:
        """Take the partition in, or take note of a change of its leadership."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.append_queued()
            partition.leader_id, partition.leader_epoch = leader_id, leader_epoch
            partition.replicas, partition.isr = replicas, isr
            partition.is_leader = leader_id == self.broker_id
            partition.log.enter_leader_epoch(leader_epoch)
            partition.wake_fetches()
            return
        try:
            log = self.logs.get_or_create(topic_partition, topic_id)
        except KafkaError as error:
            logger.error(
                "partition stays offline",
                extra={"partition": str(topic_partition), "error": error.message},
            )
            self._offline.add(topic_partition)
            return
        partition = Partition(
            topic_partition,
            topic_id,
            log,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            replicas=replicas,
            isr=isr,
            is_leader=leader_id == self.broker_id,
        )
        log.enter_leader_epoch(leader_epoch)
        partition.advance_high_watermark(log.log_end_offset)  # what was found on disk is kept
        self._partitions[topic_partition] = partition

    # A broker of a cluster

    def must_accept(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        state: PartitionRegistration,
        broker_epoch: int,
    ) -> None:
        """KafkaError unless what the controller says of the partition, to that life of the broker,
        is newer than what is known, and about this broker.
        """
        if topic_partition in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if topic_id != partition.topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{topic_partition} has topic id {partition.topic_id}, not {topic_id}",
                )
            resigned_in = partition.resigned_in
            is_in_next_life = resigned_in is not None and broker_epoch > resigned_in
            is_known = state.leader_epoch == partition.leader_epoch and not is_in_next_life
            if state.leader_epoch < partition.leader_epoch or is_known:
                raise KafkaError(
                    ErrorCode.STALE_CONTROLLER_EPOCH,
                    f"{topic_partition} is at leader epoch {partition.leader_epoch} already",
                )
        if self.broker_id not in state.replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def lead(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        state: PartitionRegistration,
        host: PartitionHost,
    ) -> Partition:
        partition = self._get_or_create(topic_partition, topic_id)
        partition.make_leader(state, host)
        return partition

    def follow(
        self, topic_partition: TopicPartition, topic_id: Uuid, state: PartitionRegistration
    ) -> Partition:
        partition = self._get_or_create(topic_partition, topic_id)
        partition.make_follower(state)
        return partition

    def _get_or_create(self, topic_partition: TopicPartition, topic_id: Uuid) -> Partition:
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition
        try:
            log = self.logs.get_or_create(topic_partition, topic_id)
        except KafkaError as error:
            logger.error(
                "partition stays offline",
                extra={"partition": str(topic_partition), "error": error.message},
            )
            if error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
                self._offline.add(topic_partition)
            raise
        partition = self._partitions[topic_partition] = Partition(
            topic_partition,
            topic_id,
            log,
            leader_id=NO_LEADER,
            leader_epoch=NO_LEADER_EPOCH,
            replicas=(),
            isr=(),
            is_leader=False,
        )
        return partition

    def stop(self, topic_partition: TopicPartition) -> None:
        """Lead and serve the partition no more; its log stays."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def maybe_shrink_isrs(self, alter_partition: AlterPartition) -> Iterator[None]:
        """By the clock, in steps: followers that lag for too long leave the in-sync sets."""
        for partition in tuple(self):
            if self.get(*partition.topic_partition) is not partition:
                continue  # it has gone since
            leadership = partition.leadership
            if leadership is not None and partition.is_leader and leadership.maybe_shrink_isr():
                alter_partition(partition)
            if leadership is not None:
                partition.others_changed()
            yield

    # Ends

    def take_offline(self, topic_partition: TopicPartition, reason: str) -> None:
        """The log cannot be trusted any more: refuse the partition until the next start."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is None:
            return
        logger.error(
            "partition goes offline", extra={"partition": str(topic_partition), "error": reason}
        )
        self.past_traffic.add(partition.traffic)
        self._offline.add(topic_partition)
        self.logs.take_offline(topic_partition, reason)
        partition.retire(ErrorCode.KAFKA_STORAGE_ERROR)
        self.went_offline(partition)

    def drop(self, topic_partition: TopicPartition) -> None:
        """Stop hosting the partition and delete its log."""
        partition = self._partitions.pop(topic_partition, None)
        self._offline.discard(topic_partition)
        if partition is not None:
            self.past_traffic.add(partition.traffic)
            partition.retire(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            self.logs.async_delete(topic_partition)
        except KafkaError as error:
            logger.error(
                "log of a deleted partition stays on disk",
                extra={"partition": str(topic_partition), "error": error.message},
            )
