"""Asking the controller for in-sync sets: what each of its answers leads to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.log_builder import TOPIC_ID, TOPIC_PARTITION, LogWorkshop
from tests.support.metadata import in_loop
from tidelog.errors import ErrorCode
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from tidelog.replication.alter_partition_manager import AlterPartitionManager
from tidelog.replication.leadership import Leadership
from tidelog.replication.partition import Partition, PartitionRegistration
from tidelog.replication.partition_host import PartitionHost


class Stage:
    """A leader of a partition whose follower 2 wants to join, and a scripted controller."""

    def __init__(self, tmp_path: Path) -> None:
        workshop = LogWorkshop(tmp_path)
        self.clock = workshop.clock
        self.requests: list[AlterPartitionRequest] = []
        self.answers: list[AlterPartitionResponse | Exception] = []
        self.before_answer: Callable[[], object] = lambda: None
        self.manager = AlterPartitionManager(
            self._answer, lambda: 70, loop=asyncio.get_running_loop(), timer=self.clock
        )
        self.host = self.manager.host = PartitionHost(
            1, self.clock, self.manager.submit, replica_lag_time_max_ms=10_000
        )
        self.partition = Partition(
            TOPIC_PARTITION,
            TOPIC_ID,
            workshop.create(),
            leader_id=-1,
            leader_epoch=-1,
            replicas=(),
            isr=(),
            is_leader=False,
        )
        self.partition.make_leader(PartitionRegistration(1, 5, (1, 2, 3), (1, 3), 8), self.host)

    async def _answer(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        self.before_answer()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def leadership(self) -> Leadership:
        assert self.partition.leadership is not None
        return self.partition.leadership

    def propose(self) -> None:
        self.host.follower(2).broker_epoch = 60
        remote = self.leadership.remotes[2]
        remote.log_end_offset = 0
        assert self.leadership.maybe_expand_isr(remote)
        self.manager.submit(self.partition)

    def order(self, *, leader: int, isr: tuple[int, ...], epoch: int = 6) -> None:
        state = PartitionRegistration(leader, epoch, (1, 2, 3), isr, 10)
        if leader == 1:
            self.partition.make_leader(state, self.host)
        else:
            self.partition.make_follower(state)

    async def run(self, ms: int = 0) -> None:
        self.clock.advance(ms=ms)
        for _ in range(4):
            await asyncio.sleep(0)


def answer(code: ErrorCode = ErrorCode.NONE, *, epoch: int = 9) -> AlterPartitionResponse:
    row = AlterPartitionResponsePartitionData(
        partition_index=0,
        error_code=code,
        leader_id=1,
        leader_epoch=5,
        isr=[1, 2, 3],
        partition_epoch=epoch,
    )
    return AlterPartitionResponse(
        topics=[AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=[row])]
    )


@in_loop
async def test_a_change_is_asked_for_with_the_epochs_of_its_members(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.answers = [answer()]
    stage.propose()
    await stage.run()
    (request,) = stage.requests
    row = request.topics[0].partitions[0]
    assert (request.broker_id, request.broker_epoch) == (1, 70)
    assert (row.leader_epoch, row.partition_epoch) == (5, 8)
    members = [(member.broker_id, member.broker_epoch) for member in row.new_isr_with_epochs]
    assert members == [(1, 70), (2, 60), (3, -1)]
    assert stage.leadership.isr == {1, 2, 3}
    assert stage.partition.partition_epoch == 9


@in_loop
async def test_a_change_is_about_the_lives_that_were_in_sync_when_it_was_proposed(
    tmp_path: Path,
) -> None:
    """The follower has crashed meanwhile and may lack what it had: the controller is to see that
    it is not the one that caught up.
    """
    stage = Stage(tmp_path)
    stage.answers = [ConnectionError("no controller"), answer(ErrorCode.INELIGIBLE_REPLICA)]
    stage.propose()
    await stage.run()
    stage.host.follower(2).broker_epoch = 61
    await stage.run(ms=100)
    for request in stage.requests:
        members = request.topics[0].partitions[0].new_isr_with_epochs
        assert [m.broker_epoch for m in members if m.broker_id == 2] == [60]
    assert stage.leadership.isr == {1, 3}


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
@in_loop
async def test_a_change_that_was_not_made_is_withdrawn(tmp_path: Path, code: ErrorCode) -> None:
    stage = Stage(tmp_path)
    stage.answers = [answer(code)]
    stage.propose()
    await stage.run()
    await stage.run(ms=1_000)
    assert len(stage.requests) == 1
    assert stage.leadership.isr == {1, 3}
    assert stage.leadership.proposed_isr is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ],
)
@in_loop
async def test_a_leader_that_knows_too_little_waits_for_orders(
    tmp_path: Path, code: ErrorCode
) -> None:
    stage = Stage(tmp_path)
    stage.answers = [answer(code)]
    stage.propose()
    await stage.run()
    await stage.run(ms=1_000)
    assert len(stage.requests) == 1
    assert stage.leadership.maximal_isr == {1, 2, 3}


@pytest.mark.parametrize(
    "first",
    [
        ConnectionError("gone"),
        TimeoutError("late"),
        AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        answer(ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["connection", "timeout", "not controller", "other"],
)
@in_loop
async def test_other_failures_are_asked_again(
    tmp_path: Path, first: AlterPartitionResponse | Exception
) -> None:
    stage = Stage(tmp_path)
    stage.answers = [first, answer()]
    stage.propose()
    await stage.run()
    assert stage.leadership.isr == {1, 3}
    await stage.run(ms=100)
    assert len(stage.requests) == 2
    assert stage.leadership.isr == {1, 2, 3}


@in_loop
async def test_an_answer_that_comes_after_an_order_does_not_count(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.answers = [answer()]
    stage.before_answer = lambda: stage.order(leader=1, isr=(1,))
    stage.propose()
    await stage.run()
    assert len(stage.requests) == 1
    assert stage.leadership.isr == {1}
    assert stage.partition.partition_epoch == 10


@pytest.mark.parametrize("leader", [1, 2], ids=["leads on", "follows"])
@in_loop
async def test_what_an_order_has_ended_is_not_asked_for(tmp_path: Path, leader: int) -> None:
    """The order is handled in the turn in which asking is due, and before it."""
    stage = Stage(tmp_path)
    stage.propose()
    stage.clock.advance(ms=0)
    stage.order(leader=leader, isr=(1,))
    await stage.run()
    assert stage.requests == []
    if leader == 2:
        stage.order(leader=1, isr=(1, 3), epoch=7)
    stage.answers = [answer(ErrorCode.INELIGIBLE_REPLICA)]
    stage.propose()
    await stage.run()
    assert len(stage.requests) == 1


@in_loop
async def test_an_unforeseen_error_is_told_and_what_is_proposed_is_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    stage.answers = [DecodeError("not an answer"), answer()]
    stage.propose()
    await stage.run()
    await stage.run(ms=100)
    assert len(stage.requests) == 2
    assert stage.leadership.isr == {1, 2, 3}
    assert "not an answer" in caplog.text
