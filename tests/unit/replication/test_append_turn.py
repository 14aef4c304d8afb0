"""Small appends wait for the end of the turn and share a write; nobody can tell otherwise."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.batches import NOW, with_fields
from tests.support.handlers import HandlerStage, handler_stage, settled
from tests.support.log_builder import values
from tests.support.metadata import in_loop
from tests.support.replica_cluster import ReplicaCluster
from tidelog.broker.handlers import produce
from tidelog.errors import ErrorCode
from tidelog.log.partition_log import LogAppendInfo
from tidelog.pending import Pending
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.record.builder import batch_of
from tidelog.replication.append_turn import (
    APPENDS_BETWEEN_TRIALS,
    APPENDS_PER_WRITE_MIN,
    SMALL_BYTES,
    TURN_BYTES_MAX,
    QueuedAppend,
)
from tidelog.replication.partition import Partition, PartitionRegistration
from tidelog.replication.partition_host import PartitionHost


def let_appends_wait(stage: HandlerStage) -> None:
    """Until the end of the turn, as if this were not its first append."""
    while not stage.broker.append_turn.is_worth_waiting(1):
        pass


def batch(value: bytes, **fields: Any) -> bytearray:
    return batch_of([(b"k", value, (), NOW)], **fields)


def of_producer(value: bytes, sequence: int) -> bytearray:
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)


def send(
    stage: HandlerStage,
    *rows: tuple[int, bytearray],
    topic: str = "t",
    acks: int = 1,
    version: int = 9,
) -> Any:
    """What the handler gives back. Then its frame is used again, as a connection does."""
    data = [PartitionProduceData(index=n, records=memoryview(r)) for n, r in rows]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    answer = produce.handle(stage.context(version), request)
    for _, records in rows:
        records[:] = bytes(len(records))
    return answer


class Answers:
    """What has been answered, in order: (name, row)."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, PartitionProduceResponse]] = []
        self.failures: list[BaseException] = []

    def expect(self, name: str, answer: Any) -> None:
        assert isinstance(answer, Pending)
        assert answer.lets_others_pass

        def take(response: ProduceResponse) -> None:
            for row in response.responses[0].partition_responses:
                self.rows.append((name, row))

        answer.then(take, self.failures.append)

    def summary(self) -> list[tuple[str, int, int]]:
        return [(name, row.error_code, row.base_offset) for name, row in self.rows]


def end_turn(stage: HandlerStage) -> None:
    stage.clock.advance(ms=0)


# Sharing


@in_loop
async def test_appends_of_a_turn_are_one_write_and_answered_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        send(stage, (0, batch(b"first")))
        let_appends_wait(stage)
        writes: list[int] = []
        real_pwrite = os.pwrite

        def pwrite(descriptor: int, data: Any, position: int) -> int:
            writes.append(len(data))
            return real_pwrite(descriptor, data, position)

        monkeypatch.setattr(os, "pwrite", pwrite)
        answers = Answers()
        for name in "abc":
            answers.expect(name, send(stage, (0, batch(name.encode()))))
        log = stage.partition("t").log
        assert (answers.rows, writes, log.log_end_offset) == ([], [], 1)
        end_turn(stage)
        assert answers.summary() == [("a", 0, 1), ("b", 0, 2), ("c", 0, 3)]
        assert len(writes) == 1
        assert log.high_watermark == 4
        assert values(log) == [b"first", b"a", b"b", b"c"]


@in_loop
async def test_each_has_its_own_error(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        let_appends_wait(stage)
        answers = Answers()
        answers.expect("good", send(stage, (0, batch(b"1"))))
        answers.expect("damaged", send(stage, (0, with_fields(batch(b"2"), crc=1))))
        answers.expect("odd", send(stage, (0, with_fields(batch(b"3"), records_count=9))))
        answers.expect("also good", send(stage, (0, batch(b"4"))))
        end_turn(stage)
        assert answers.summary() == [
            ("good", 0, 0),
            ("damaged", ErrorCode.CORRUPT_MESSAGE, -1),
            ("odd", ErrorCode.INVALID_RECORD, -1),
            ("also good", 0, 1),
        ]
        starts = {name: row.log_start_offset for name, row in answers.rows}
        assert (starts["damaged"], starts["odd"]) == (-1, 0)
        assert answers.rows[1][1].error_message


@in_loop
async def test_rows_of_one_request_go_to_their_partitions(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", 3)
        let_appends_wait(stage)
        answers = Answers()
        answers.expect("x", send(stage, (0, batch(b"a")), (2, batch(b"b"))))
        answers.expect("y", send(stage, (2, batch(b"c"))))
        end_turn(stage)
        assert answers.summary() == [("x", 0, 0), ("x", 0, 0), ("y", 0, 1)]
        assert values(stage.partition("t", 2).log) == [b"b", b"c"]


@in_loop
async def test_a_duplicate_in_the_turn_of_the_first_is_told_its_offset(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        let_appends_wait(stage)
        answers = Answers()
        for name, sequence in (("0", 0), ("1", 1), ("0 again", 0), ("2", 2), ("gap", 9)):
            answers.expect(name, send(stage, (0, of_producer(b"v", sequence))))
        end_turn(stage)
        gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert answers.summary() == [
            ("0", 0, 0),
            ("1", 0, 1),
            ("0 again", 0, 0),
            ("2", 0, 2),
            ("gap", gap, -1),
        ]


@in_loop
async def test_what_needs_a_flush_is_answered_after_it(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", flush_messages="1")
        let_appends_wait(stage)
        answers = [send(stage, (0, batch(b"v"))) for _ in range(3)]
        end_turn(stage)
        log = stage.partition("t").log
        assert log.high_watermark == 0
        rows = [(await settled(each)).responses[0].partition_responses[0] for each in answers]
        assert [row.base_offset for row in rows] == [0, 1, 2]
        assert log.high_watermark == log.recovery_point == 3


@pytest.mark.interpreted
@in_loop
async def test_a_bug_in_an_append_leaves_nobody_waiting(tmp_path: Path) -> None:
    class Broken(QueuedAppend):
        def settle(self) -> None:
            raise AssertionError("a bug here must not keep the others waiting either")

    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        let_appends_wait(stage)
        answers = Answers()
        answers.expect("before", send(stage, (0, batch(b"a"))))
        released = memoryview(b"records")
        released.release()
        stage.partition("t").append_soon(Broken(released, 9))
        answers.expect("behind", send(stage, (0, batch(b"b"))))
        end_turn(stage)
        assert len(answers.rows) + len(answers.failures) == 2
        assert answers.failures
        let_appends_wait(stage)
        answers.expect("next turn", send(stage, (0, batch(b"c"))))
        end_turn(stage)
        assert answers.rows[-1][0] == "next turn"


# When to wait


@in_loop
async def test_a_lone_append_does_not_wait(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        timers = stage.clock.pending_timers()
        turns = 0
        for _ in range(4 * APPENDS_BETWEEN_TRIALS):
            assert isinstance(send(stage, (0, batch(b"alone"))), ProduceResponse)
            turns += stage.clock.pending_timers() - timers
            end_turn(stage)
        assert turns < 5


@in_loop
async def test_appends_to_different_partitions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", 4)
        let_appends_wait(stage)
        for number in range(20):
            assert isinstance(send(stage, (number % 4, batch(b"trial"))), Pending)
        end_turn(stage)
        for _ in range(APPENDS_BETWEEN_TRIALS):
            assert isinstance(send(stage, (0, batch(b"alone"))), ProduceResponse)


@in_loop
async def test_appends_that_meet_go_on_waiting_for_each_other(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        let_appends_wait(stage)
        for _ in range(3):
            for _ in range(APPENDS_PER_WRITE_MIN):
                assert isinstance(send(stage, (0, batch(b"v"))), Pending)
            end_turn(stage)
            assert isinstance(send(stage, (0, batch(b"first of its turn"))), ProduceResponse)
        assert stage.partition("t").log.log_end_offset == 3 * APPENDS_PER_WRITE_MIN + 3


@in_loop
async def test_no_more_than_a_bound_waits(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        let_appends_wait(stage)
        size = SMALL_BYTES - 200
        for _ in range(TURN_BYTES_MAX // size + 2):
            send(stage, (0, batch(b"v" * size)))
        assert stage.partition("t").log.size_bytes > TURN_BYTES_MAX - 2 * SMALL_BYTES
        end_turn(stage)
        assert stage.partition("t").log.log_end_offset == TURN_BYTES_MAX // size + 2


# Order


@in_loop
async def test_what_does_not_wait_comes_behind_what_does(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        partition = stage.partition("t")
        for direct in (
            lambda: send(stage, (0, batch(b"B" * SMALL_BYTES))),
            lambda: send(stage, (0, batch(b"B")), acks=0),
            lambda: partition.append_as_coordinator(memoryview(batch(b"B"))),
        ):
            let_appends_wait(stage)
            answers = Answers()
            answers.expect("a", send(stage, (0, batch(b"A"))))
            end_offset = partition.log.log_end_offset
            direct()
            assert answers.summary() == [("a", 0, end_offset)]
            assert partition.log.log_end_offset == end_offset + 2
            end_turn(stage)
        assert [(value or b"")[:1] for value in values(partition.log)] == [b"A", b"B"] * 3


@in_loop
async def test_what_waits_is_appended_before_another_broker_leads(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        partition = stage.partition("t")
        let_appends_wait(stage)
        answers = Answers()
        answers.expect("a", send(stage, (0, batch(b"A"))))
        epoch = partition.leader_epoch
        stage.broker.replicas.host(
            partition.topic_partition,
            partition.topic_id,
            leader_id=99,
            leader_epoch=epoch + 1,
            replicas=[99],
            isr=[99],
        )
        assert answers.summary() == [("a", 0, 0)]
        assert partition.log.epoch_at(0) == epoch
        end_turn(stage)
        assert partition.log.log_end_offset == 1


@in_loop
async def test_what_waits_is_answered_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        let_appends_wait(stage)
        answers = Answers()
        answers.expect("a", send(stage, (0, batch(b"A"))))
        stage.broker.replicas.drop(stage.partition("t").topic_partition)
        assert answers.summary() == [("a", 0, 0)]
        end_turn(stage)


@in_loop
async def test_what_waits_for_a_log_that_is_lost_is_a_storage_error(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        partition = stage.partition("t")
        let_appends_wait(stage)
        answers = Answers()
        answers.expect("a", send(stage, (0, batch(b"A"))))
        stage.broker.replicas.take_offline(partition.topic_partition, "disk")
        assert answers.summary() == [("a", ErrorCode.KAFKA_STORAGE_ERROR, -1)]
        assert partition.log.log_end_offset == 0
        end_turn(stage)


@in_loop
async def test_the_stop_of_the_broker_appends_what_waits(tmp_path: Path) -> None:
    answers = Answers()
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        let_appends_wait(stage)
        for name in "abc":
            answers.expect(name, send(stage, (0, batch(b"A"))))
        stage.broker.append_turn.end()  # as Server.stop does
    assert answers.summary() == [("a", 0, 0), ("b", 0, 1), ("c", 0, 2)]


# With followers


@dataclass
class Follower:
    fetch_offset: int
    log_start_offset: int = 0


@in_loop
async def test_acks_all_waits_for_the_turn_and_then_for_the_followers(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        partition, own_id = stage.partition("t"), stage.broker.broker_id
        host = PartitionHost(own_id, stage.clock, cast(Any, None), replica_lag_time_max_ms=10_000)
        replicas, epoch = (own_id, own_id + 1), partition.leader_epoch + 1
        partition.make_leader(PartitionRegistration(own_id, epoch, replicas, replicas, 1), host)
        let_appends_wait(stage)
        answers = Answers()
        for name in "abc":
            answers.expect(name, send(stage, (0, batch(b"v")), acks=-1))
        answers.expect("one", send(stage, (0, batch(b"v")), acks=1))
        end_turn(stage)
        assert answers.summary() == [("one", 0, 3)]
        partition.note_follower_fetch(own_id + 1, Follower(2), host.now_ms())
        assert answers.summary()[1:] == [("a", 0, 0), ("b", 0, 1)]
        stage.clock.advance(ms=1000)
        assert answers.summary()[3:] == [("c", ErrorCode.REQUEST_TIMED_OUT, 2)]


@in_loop
async def test_acks_all_is_refused_before_it_waits_where_too_few_are_in_sync(
    tmp_path: Path,
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", min_insync_replicas="2")
        partition, own_id = stage.partition("t"), stage.broker.broker_id
        host = PartitionHost(own_id, stage.clock, cast(Any, None), replica_lag_time_max_ms=10_000)
        state = PartitionRegistration(own_id, 1, (own_id, own_id + 1), (own_id,), 1)
        partition.make_leader(state, host)
        let_appends_wait(stage)
        answer = send(stage, (0, batch(b"v")), acks=-1)
        assert isinstance(answer, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


class Recorded(QueuedAppend):
    def __init__(self, value: bytes) -> None:
        super().__init__(memoryview(batch(value)), 9)
        self.settled = 0

    def settle(self) -> None:
        self.settled += 1


async def led(tmp_path: Path) -> tuple[ReplicaCluster, Partition]:
    cluster = ReplicaCluster(tmp_path)
    cluster.start()
    await cluster.settle()
    await cluster.run()
    return cluster, cluster.leader.partition


@pytest.mark.interpreted
@in_loop
async def test_followers_and_high_watermark_see_what_waited_once_it_is_written(
    tmp_path: Path,
) -> None:
    cluster, leader = await led(tmp_path)
    appends = [Recorded(b"a"), Recorded(b"b")]
    assert [leader.append_soon(append) for append in appends] == [True, False]
    await cluster.run()
    assert leader.log.log_end_offset == 0
    leader.append_queued()
    assert [append.settled for append in appends] == [1, 1]
    assert (leader.log.log_end_offset, leader.log.high_watermark) == (2, 0)
    await cluster.run()
    assert leader.log.high_watermark == 2


@pytest.mark.interpreted
@in_loop
async def test_a_leader_that_is_replaced_appends_what_waits_in_its_own_epoch(
    tmp_path: Path,
) -> None:
    cluster, leader = await led(tmp_path)
    epoch = leader.leader_epoch
    append = Recorded(b"a")
    leader.append_soon(append)
    cluster.elect(next(number for number in cluster.nodes if number != leader.leader_id))
    cluster.tell()
    assert append.settled == 1
    assert isinstance(append.outcome, LogAppendInfo)
    assert leader.log.epoch_at(append.outcome.base_offset) == epoch


@pytest.mark.interpreted
@in_loop
async def test_a_leader_that_is_suspended_appends_what_waits(tmp_path: Path) -> None:
    _, leader = await led(tmp_path)
    append = Recorded(b"a")
    leader.append_soon(append)
    leader.suspend()
    assert isinstance(append.outcome, LogAppendInfo)
    assert not leader.is_leader
