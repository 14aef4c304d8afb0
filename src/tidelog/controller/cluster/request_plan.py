"""Which brokers have to be told of what, noted while a decision is made.

Only the need is noted. What the requests say is taken from the draft when the decision is done
(`control_requests.py`), so a partition that is changed twice is told once, as it ended up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelog.types import TopicPartition


class RequestPlan:
    def __init__(self) -> None:
        # By broker: partitions to lead or follow, and whether the replica is new there.
        self.leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        # By broker: partitions to stop, and whether to delete them.
        self.stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self.metadata_of: dict[TopicPartition, None] = {}  # for all brokers
        self.brokers_changed = False  # all brokers need the list of brokers first
        self.newcomers: set[int] = set()  # brokers that need the metadata of every partition

    def tell_replicas(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, is_new: bool = False
    ) -> None:
        """The brokers lead or follow the partition; all brokers hear of its leader."""
        for broker_id in broker_ids:
            partitions = self.leader_and_isr.setdefault(broker_id, {})
            partitions[partition] = is_new or partitions.get(partition, False)
        self.metadata_of[partition] = None

    def stop(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, delete: bool = False
    ) -> None:
        for broker_id in broker_ids:
            partitions = self.stop_replica.setdefault(broker_id, {})
            partitions[partition] = delete or partitions.get(partition, False)

    def tell_everyone(self, partitions: Iterable[TopicPartition]) -> None:
        self.metadata_of.update(dict.fromkeys(partitions))

    def introduce_brokers(self, newcomers: Collection[int] = ()) -> None:
        self.brokers_changed = True
        self.newcomers.update(newcomers)
