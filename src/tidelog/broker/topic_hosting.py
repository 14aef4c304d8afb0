"""What a lone broker does about its topics: host partitions, drop them, tell the coordinators.

A topic may have 10,000 partitions. Threads make their folders and files, and the loop does its part
in slices, between which it serves others. A client that asks for a partition that is not hosted yet
gets NOT_LEADER_OR_FOLLOWER and asks again. If the broker crashes in between, the next start makes
the partitions that are missing (`host_now`), and sets aside those that were to go.
Touched only on the broker loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.controller.topics import PartitionImage, TopicChange, TopicImage
from tidelog.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

LOGS_PER_THREAD_CALL: Final = 100


class TopicHosting:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def host_now(self, image: TopicImage) -> None:
        """Blocking; for start-up."""
        for partition in self._ours(image):
            self._host(image, partition)
        self._coordinate(image)

    async def carry_out(self, change: TopicChange, image: TopicImage) -> None:
        groups = self._broker.groups
        if change is TopicChange.DELETED:
            # First, and waited for: a new topic of that name must find no old offsets, and nobody
            # would remove them after a crash.
            groups.topic_deleted(image.name)
            await groups.worked_off()
            await self._drop(image)
            return
        await self._host_in_slices(image)
        self._coordinate(image)
        if change is TopicChange.CREATED:
            groups.topic_created(image.name)
        else:
            groups.topic_changed(image.name)

    async def _host_in_slices(self, image: TopicImage) -> None:
        replicas, ours = self._broker.replicas, self._ours(image)
        for first in range(0, len(ours), LOGS_PER_THREAD_CALL):
            batch = ours[first : first + LOGS_PER_THREAD_CALL]
            await replicas.make_logs(self._wanted(image, batch))
            for partition in batch:
                await self._broker.slices.breathe()
                self._host(image, partition)

    def _ours(self, image: TopicImage) -> list[PartitionImage]:
        """Topics of an adopted directory may have partitions on brokers that are not there."""
        return [each for each in image.partitions if self._broker.broker_id in each.replicas]

    def _wanted(
        self, image: TopicImage, partitions: Sequence[PartitionImage]
    ) -> list[tuple[TopicPartition, Uuid]]:
        return [(TopicPartition(image.name, each.partition), image.topic_id) for each in partitions]

    def _host(self, image: TopicImage, partition: PartitionImage) -> None:
        self._broker.replicas.host(
            TopicPartition(image.name, partition.partition),
            image.topic_id,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
        )

    def _coordinate(self, image: TopicImage) -> None:
        coordinator = self._broker.coordinators.runtime_of(image.name)
        if coordinator is None:
            return
        replicas = self._broker.replicas
        hosted = (replicas.get(image.name, index) for index in range(len(image.partitions)))
        led = [each for each in hosted if each and each.leader_id == self._broker.broker_id]
        coordinator.host(led, len(image.partitions))

    async def _drop(self, image: TopicImage) -> None:
        coordinator = self._broker.coordinators.runtime_of(image.name)
        if coordinator is not None:
            coordinator.resign_all()
        for index in range(len(image.partitions)):
            await self._broker.slices.breathe()
            self._broker.replicas.drop(TopicPartition(image.name, index))
