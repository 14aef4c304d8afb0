"""The partitions that this broker hosts, by name and by topic id."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Set

from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.log_manager import LogManager
from tidelog.replication.partition import Partition
from tidelog.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)


class ReplicaManager:
    """Owns every `Partition`; the controller's decisions reach it as `host` and `drop`."""

    def __init__(self, broker_id: int, logs: LogManager) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()  # assigned here, but the log cannot be used

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
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def leader(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it; else the error that a client is to see."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise KafkaError(self.absent_error(topic, index))
        if partition.leader_id != self.broker_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

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
            partition.leader_id, partition.leader_epoch = leader_id, leader_epoch
            partition.replicas, partition.isr = replicas, isr
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
        )
        log.enter_leader_epoch(leader_epoch)
        partition.advance_high_watermark()
        self._partitions[topic_partition] = partition

    def take_offline(self, topic_partition: TopicPartition, reason: str) -> None:
        """The log cannot be trusted any more: refuse the partition until the next start."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is None:
            return
        logger.error(
            "partition goes offline", extra={"partition": str(topic_partition), "error": reason}
        )
        self._offline.add(topic_partition)
        self.logs.take_offline(topic_partition, reason)
        partition.wake_fetches()

    def drop(self, topic_partition: TopicPartition) -> None:
        """Stop hosting the partition and delete its log."""
        partition = self._partitions.pop(topic_partition, None)
        self._offline.discard(topic_partition)
        if partition is not None:
            partition.wake_fetches()
        try:
            self.logs.async_delete(topic_partition)
        except KafkaError as error:
            logger.error(
                "log of a deleted partition stays on disk",
                extra={"partition": str(topic_partition), "error": error.message},
            )
