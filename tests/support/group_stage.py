"""A group coordinator on real logs, with a clock that stands still and flushes that a test ends."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast

from tests.support.clock import FakeClock
from tests.support.fake_topics import FakeTopics
from tests.support.stored_columns import read_columns
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
from tidelog.coordinator.group.coordinator import GroupCoordinator
from tidelog.coordinator.group.shard import GROUP_RECORD_TYPES
from tidelog.coordinator.stored_record import CoordinatorRecord
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_loader import create_log
from tidelog.log.partition_log import PartitionLog
from tidelog.replication.flusher import FlushCallback
from tidelog.replication.partition import Partition
from tidelog.types import CONSUMER_OFFSETS, TopicPartition, Uuid

PARTITIONS = 2
TOPIC_ID = Uuid(bytes(range(16)))


class HeldFlusher:
    """Flushes end when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[PartitionLog, FlushCallback]] = []

    def flush(self, log: PartitionLog, callback: FlushCallback) -> None:
        self.waiting.append((log, callback))

    def end(self, error: OSError | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for log, callback in waiting:
            if error is None:
                log.flush()
            callback(error)


class GroupStage:
    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        flush_messages: int | None = None,
        topics: FakeTopics | None = None,
    ) -> None:
        self.topics = topics or FakeTopics()
        self.config = BrokerConfig({"log.dirs": str(directory), **(overrides or {})})
        self.clock = FakeClock()
        self.flusher = HeldFlusher()
        log_config = LogConfig(compact=True, delete=False)
        if flush_messages is not None:
            log_config = LogConfig(compact=True, delete=False, flush_messages=flush_messages)
        self.partitions = [
            self._partition(directory, index, log_config) for index in range(PARTITIONS)
        ]
        self._uuids = count(1)
        self.start()

    def _partition(self, directory: Path, index: int, config: LogConfig) -> Partition:
        place = TopicPartition(CONSUMER_OFFSETS, index)
        environment = LogEnvironment(
            self.clock,
            random=Random(7),
            delete_later=lambda paths, delay_ms: None,
            rolled=lambda log: None,
        )
        log = create_log(str(directory / str(place)), place, TOPIC_ID, config, environment, 0)
        return Partition(place, TOPIC_ID, log, leader_id=0, leader_epoch=0, replicas=[0], isr=[0])

    def start(self) -> None:
        """A coordinator that knows nothing yet; what the logs hold is loaded with `load`."""
        self.groups = GroupCoordinator(
            self.config,
            clock=self.clock,
            timer=self.clock,
            flusher=cast(Any, self.flusher),
            topics=self.topics,
            new_uuid=lambda: str(next(self._uuids)),
        )
        self.groups.runtime.host(self.partitions, PARTITIONS)

    @classmethod
    def reading(cls, other: GroupStage) -> GroupStage:
        """Another coordinator, loaded from the same logs; the first one goes on."""
        stage = cls.__new__(cls)
        stage.config, stage.partitions = other.config, other.partitions
        stage.topics = other.topics
        stage.clock, stage.flusher = FakeClock(other.clock.time_ms()), HeldFlusher()
        stage._uuids = count(1)
        stage.start()
        stage.load()
        return stage

    def classic_or_none(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.group_or_none(group_id)
        assert group is None or isinstance(group, ClassicGroup), group
        return group

    def consumer_or_none(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.group_or_none(group_id)
        assert group is None or isinstance(group, ConsumerGroup), group
        return group

    def load(self) -> None:
        while self.groups.runtime.is_loading:
            self.clock.advance(ms=0)

    def restart(self) -> None:
        self.groups.runtime.resign_all()
        self.start()
        self.load()

    def records(self) -> list[CoordinatorRecord]:
        """Everything in the topic, in order, partition by partition."""
        found = []
        for partition in self.partitions:
            log = partition.log
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                result = log.read(
                    offset, 1 << 20, up_to_offset=log.log_end_offset, min_one_batch=True
                )
                assert result.records is not None
                for stored in read_columns(result.records.read()):
                    assert stored.key is not None
                    record = GROUP_RECORD_TYPES.decode(stored.key, stored.value)
                    assert record is not None
                    found.append(record)
                    offset = stored.offset + 1
        return found
