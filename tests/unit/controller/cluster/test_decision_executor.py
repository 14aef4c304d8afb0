"""Carrying out decisions when the store loses answers, is out of reach, or takes only so much."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.support.broker_session import BrokerSession
from tests.support.fake_cluster import FakeCluster
from tests.support.metadata import in_loop
from tidelog.controller import znodes
from tidelog.controller.cluster.controller_store import MULTI_BYTES_MAX, in_multis
from tidelog.controller.metadata_store import (
    Check,
    Create,
    Delete,
    Operation,
    Outcome,
    OutcomeUnknown,
    SetData,
    StoreUnavailable,
)
from tidelog.types import TopicPartition

T0 = TopicPartition("t", 0)


class Unreliable:
    """Makes the next multis of a session fail, after they are done or before."""

    def __init__(self, session: BrokerSession) -> None:
        self._multi = session.multi
        self.answers_to_lose = 0
        self.calls_to_refuse = 0
        session.multi = self.multi  # type: ignore[method-assign]

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        if self.calls_to_refuse:
            self.calls_to_refuse -= 1
            raise StoreUnavailable("/")
        outcomes = await self._multi(operations)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise OutcomeUnknown("/")
        return outcomes


@in_loop
async def test_a_write_whose_answer_was_lost_is_told_to_the_brokers(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3)
    await cluster.create_topic("t", [[2, 3]])
    store = Unreliable(cluster.sessions[1])
    store.answers_to_lose = 1
    await cluster.meanwhile(cluster.kill(2), ms=100)
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (3, [3])
    assert cluster.brokers[3].hosted[T0].leader == 3
    assert cluster.brokers[3].hosted[T0].partition_epoch == await cluster.version("t")
    await cluster.close()


@in_loop
async def test_a_new_topic_whose_making_was_not_answered_is_told_to_the_brokers(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2)
    store = Unreliable(cluster.sessions[1])
    store.answers_to_lose = 1
    making = cluster.create_topic("t", [[1, 2]])
    await cluster.meanwhile(making, ms=100)
    assert cluster.brokers[2].hosted[T0].leader == 1
    assert (await cluster.state("t")).leader == 1
    await cluster.close()


class Deleting:
    """Removes a topic just before its first state is written."""

    def __init__(self, cluster: FakeCluster, session: BrokerSession, topic: str) -> None:
        self._cluster = cluster
        self._multi = session.multi
        self._topic = topic
        session.multi = self.multi  # type: ignore[method-assign]

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        path = znodes.topic_path(self._topic)
        if Check(path) in operations and await self._cluster.store.exists(path) is not None:
            await self._cluster.store.delete(path)
        return await self._multi(operations)


@in_loop
async def test_a_topic_that_goes_before_it_has_a_leader_does_not_keep_the_controller(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2)
    Deleting(cluster, cluster.sessions[1], "t")
    making = asyncio.ensure_future(cluster.create_topic("t", [[1, 2]]))
    await asyncio.wait([making], timeout=2)
    await cluster.create_topic("u", [[2]])
    assert cluster.brokers[2].hosted[TopicPartition("u", 0)].leader == 2
    assert T0 not in cluster.brokers[2].hosted
    assert not await cluster.topic_exists("t")
    await cluster.close()


@in_loop
async def test_a_topic_that_goes_as_it_grows_does_not_keep_the_controller(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2)
    await cluster.create_topic("t", [[1, 2]])
    topic_id = (await cluster.assignment("t")).topic_id
    assert topic_id is not None
    for path in ("0/state", "0", ""):
        await cluster.store.delete(f"/brokers/topics/t/partitions/{path}".rstrip("/"))
    Deleting(cluster, cluster.sessions[1], "t")
    await cluster.store.set("/brokers/topics/t", znodes.encode_topic(topic_id, [[1, 2], [2]]))
    await cluster.settle()
    await cluster.create_topic("u", [[2]])
    assert cluster.brokers[2].hosted[TopicPartition("u", 0)].leader == 2
    await cluster.close()


@in_loop
async def test_decisions_wait_for_a_store_that_is_out_of_reach(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3)
    await cluster.create_topic("t", [[2, 3]])
    store = Unreliable(cluster.sessions[1])
    store.calls_to_refuse = 3
    await cluster.meanwhile(cluster.kill(2), ms=100)
    assert (await cluster.state("t")).leader == 3
    await cluster.close()


@in_loop
async def test_a_controller_that_cannot_take_over_gives_its_place_back(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1)
    cluster.controllers[1]._settings = {}  # type: ignore[assignment]
    await cluster.store.delete(znodes.CONTROLLER)
    await cluster.pass_time(ms=100)
    assert not cluster.controllers[1].is_active
    await cluster.start(2, settle=False)
    for _ in range(10):
        await cluster.pass_time(ms=100)
    assert cluster.controllers[2].is_active
    assert cluster.controllers[1].active_id == 2
    await cluster.close()


def test_large_decisions_are_several_multis() -> None:
    operations: list[Operation] = [
        SetData(znodes.state_path("t", n), b"x" * 200, n) for n in range(6_000)
    ]
    operations += [Create("/a", b"y" * (2 * MULTI_BYTES_MAX)), Delete("/b")]
    multis = list(in_multis(operations))
    assert [operation for multi in multis for operation in multi] == operations
    assert 4 <= len(multis) <= 6
    for multi in multis:
        assert len(multi) == 1 or sum(map(_size, multi)) <= MULTI_BYTES_MAX


def test_a_check_holds_for_all_that_follows_it_in_whatever_multi() -> None:
    """A topic that goes between two multis must not come back as the parent of its partitions."""
    operations: list[Operation] = []
    for topic in ("a", "b"):
        operations.append(Check(znodes.topic_path(topic)))
        operations += [
            Create(znodes.state_path(topic, n), b"x" * 200, make_parents=True) for n in range(3_000)
        ]
    multis = list(in_multis(operations))
    assert len(multis) > 3
    for multi in multis:
        checked = ""
        for operation in multi:
            if isinstance(operation, Check):
                checked = operation.path
            else:
                assert checked
                assert operation.path.startswith(checked + "/")


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path) + len(data)
