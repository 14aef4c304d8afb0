"""A follower's fetch session at its leader: which partitions have news, and for how long."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.support.batches import records_of
from tests.support.clock import FakeClock
from tests.support.log_builder import TOPIC_ID, LogWorkshop
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.record.builder import batch_of
from tidelog.replication.follower_session import FollowerAnswer, FollowerSession, FollowerSessions
from tidelog.replication.partition import LogReadInfo, Partition, PartitionRegistration
from tidelog.replication.partition_host import PartitionHost
from tidelog.replication.replication_throttle import ReplicationThrottles
from tidelog.types import TopicPartition, Uuid

LEADER, FOLLOWER = 1, 2
VERSION = 17
BATCH_BYTES = 9_000
ANSWER_BYTES = 10_000


class Stage:
    """A leader of several partitions, and one session of one follower."""

    def __init__(self, directory: Path, count: int) -> None:
        clock = FakeClock()
        self.host = PartitionHost(
            LEADER, clock, lambda partition: None, replica_lag_time_max_ms=30_000
        )
        self.partitions: list[Partition] = []
        state = PartitionRegistration(LEADER, 0, (LEADER, FOLLOWER), (LEADER, FOLLOWER), 0)
        for index in range(count):
            root = directory / str(index)
            root.mkdir()
            log = LogWorkshop(root, clock).create(LogConfig(min_insync_replicas=1))
            partition = Partition(
                TopicPartition("events", index),
                TOPIC_ID,
                log,
                leader_id=-1,
                leader_epoch=-1,
                replicas=(),
                isr=(),
                is_leader=False,
            )
            partition.make_leader(state, self.host)
            self.partitions.append(partition)
        throttle = ReplicationThrottles(BrokerConfig(), LEADER, clock).leader
        sessions = FollowerSessions(Random(3).randrange, throttle)
        self.session: FollowerSession = sessions.open(self.host.follower(FOLLOWER))
        self.held = [0] * count  # by the follower, as a fetcher would name it

    def append(self, index: int, value_bytes: int = BATCH_BYTES) -> None:
        batch = batch_of(records_of(1, value_bytes=value_bytes))
        self.partitions[index].append(memoryview(batch), 11)

    def fetch(
        self, *named: int, max_bytes: int = ANSWER_BYTES, partition_max_bytes: int = 1 << 20
    ) -> dict[int, LogReadInfo]:
        """What a fetcher is told that names these, and takes only whole batches."""
        rows = [
            FetchPartition(
                partition=index,
                current_leader_epoch=0,
                fetch_offset=self.held[index],
                partition_max_bytes=partition_max_bytes,
            )
            for index in named
        ]
        request = FetchRequest(topics=[FetchTopic(topic_id=TOPIC_ID, partitions=rows)])
        for entry in self.session.update(request, VERSION):
            self.session.note(entry, self._find, 0)
        answer: FollowerAnswer = self.session.read_news(max_bytes)
        told: dict[int, LogReadInfo] = {}
        for (_, _, index), read in self.session.tell(answer):
            assert not isinstance(read, ErrorCode)
            told[index] = read
        return told

    def _find(self, topic: str, topic_id: Uuid, index: int) -> Partition:
        return self.partitions[index]


def sizes(rows: dict[int, LogReadInfo]) -> dict[int, int]:
    return {index: len(row.records or b"") for index, row in rows.items()}


def test_a_batch_without_room_is_sent_with_the_next_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 3)
    stage.fetch(0, 1, 2)
    for index in range(3):
        stage.append(index)
    size = stage.partitions[0].log.size_bytes
    assert sizes(stage.fetch()) == {0: size}
    stage.held[0] = 1
    assert sizes(stage.fetch(0)) == {1: size, 0: 0}
    stage.held[1] = 1
    assert sizes(stage.fetch(1)) == {2: size, 1: 0}


def test_a_batch_above_the_partitions_limit_is_sent_when_its_turn_comes(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 2)
    stage.fetch(0, 1, partition_max_bytes=500)
    stage.append(0, 10)
    stage.append(1)
    assert set(stage.fetch()) == {0}
    for number in range(3):
        stage.append(0, 10)  # the other one keeps having news
        stage.held[0] = number + 1
        rows = sizes(stage.fetch(0, partition_max_bytes=500))
        if 1 in rows:
            break
    assert rows[1] == stage.partitions[1].log.size_bytes


def test_a_deletion_is_told_though_the_next_batch_has_no_room(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 2)
    stage.fetch(0, 1)
    stage.append(0)
    stage.append(1)
    stage.host.set_alive({FOLLOWER})
    assert set(stage.fetch()) == {0}
    partition = stage.partitions[1]
    assert partition.leadership is not None
    partition.leadership.wake_follower_fetches()
    answer = stage.session.read_news(ANSWER_BYTES)
    assert answer.is_urgent
    assert not isinstance(answer.rows[0][1], ErrorCode)


def test_news_for_which_there_is_no_room_does_not_wait_for_min_bytes(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 2)
    stage.fetch(0, 1)
    stage.append(0)
    assert not stage.session.read_news(ANSWER_BYTES).is_full
    stage.append(1)
    assert stage.session.read_news(ANSWER_BYTES).is_full
