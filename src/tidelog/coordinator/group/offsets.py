"""The offsets a group has committed, and those that wait for their transaction to end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

NO_EXPIRY: Final = -1
NOT_WRITTEN: Final = -1  # log_offset of an offset that is being decided on


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int  # -1 if the client did not say
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY  # only old clients (v2-v4) set it
    log_offset: int = NOT_WRITTEN  # where its record lies: the later one of two counts


class GroupOffsets:
    """Changed by replaying alone."""

    __slots__ = ("_by_topic", "_unstable")

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}
        self._unstable: dict[int, dict[tuple[str, int], CommittedOffset]] = {}  # by producer id

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._by_topic.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._by_topic.values())

    @property
    def is_empty(self) -> bool:
        return not self._by_topic and not self._unstable

    def topics(self) -> dict[str, dict[int, CommittedOffset]]:
        return self._by_topic

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        partitions = self._by_topic.get(topic)
        if partitions is None:
            self._by_topic[topic] = {partition: committed}
        else:
            partitions[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        """Those that wait for a transaction go too, as in Kafka."""
        partitions = self._by_topic.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._by_topic[topic]
        for producer_id in tuple(self._unstable):
            self.unstage(producer_id, topic, partition)

    # Transactions

    def stage(
        self, producer_id: int, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """Committed with the transaction, or not at all."""
        self._unstable.setdefault(producer_id, {})[topic, partition] = committed

    def unstage(self, producer_id: int, topic: str, partition: int) -> None:
        staged = self._unstable.get(producer_id)
        if staged is not None:
            staged.pop((topic, partition), None)
            if not staged:
                del self._unstable[producer_id]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        staged = self._unstable.pop(producer_id, {})
        if not committed:
            return
        for (topic, partition), offset in staged.items():
            present = self.get(topic, partition)
            if present is None or present.log_offset < offset.log_offset:
                self.put(topic, partition, offset)

    def is_unstable(self, topic: str, partition: int) -> bool:
        return bool(self._unstable) and any(
            (topic, partition) in staged for staged in self._unstable.values()
        )

    def unstable_partitions(self) -> Iterator[tuple[str, int]]:
        for staged in self._unstable.values():
            yield from staged
