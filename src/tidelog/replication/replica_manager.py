"""The partitions that this broker hosts, by name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.log_manager import LogManager
from tidelog.replication.partition import Partition
from tidelog.types import TopicPartition, Uuid


class ReplicaManager:
    """Owns every `Partition`; the controller's decisions reach it as `host` and `drop`."""

    def __init__(self, broker_id: int, logs: LogManager) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self._partitions: dict[tuple[str, int], Partition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def leader(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it; else the error that a client is to see."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
        replicas: list[int],
        isr: list[int],
    ) -> Partition:
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.leader_id, partition.leader_epoch = leader_id, leader_epoch
            partition.replicas, partition.isr = replicas, isr
            partition.wake_fetches()
            return partition
        log = self.logs.get_or_create(topic_partition, topic_id)
        partition = Partition(
            topic_partition,
            topic_id,
            log,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            replicas=replicas,
            isr=isr,
        )
        partition.advance_high_watermark()
        self._partitions[topic_partition] = partition
        return partition

    def drop(self, topic_partition: TopicPartition) -> None:
        """Stop hosting the partition and delete its log."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is None:
            return
        partition.wake_fetches()
        self.logs.async_delete(topic_partition)
