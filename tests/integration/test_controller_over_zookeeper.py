"""Controllers over a real ZooKeeper: election, failover, and decisions as ZooKeeper orders them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.fake_cluster import FakeBroker
from tests.support.metadata import in_loop
from tests.support.zookeeper import ZooKeeperProcess, fresh_chroot
from tidelog.clock import SystemClock
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.cluster.kafka_controller import KafkaController
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.types import TopicPartition, Uuid

SESSION_TIMEOUT_MS = 10_000  # no test waits for one to end
PATIENCE_S = 60.0


class Member:
    """A fake broker with a session and a controller of its own."""

    def __init__(self, ensemble: Ensemble, broker_id: int) -> None:
        self.id = broker_id
        self.ensemble = ensemble
        self.store = ZooKeeperStore.connect(
            ensemble.address,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            loop=asyncio.get_running_loop(),
        )
        self.controller = KafkaController(
            self.store,
            broker_id,
            settings=BrokerConfig({}),
            peers=ensemble,
            clock=SystemClock(),
            timer=asyncio.get_running_loop(),
        )
        self.store.on_session(self.controller.on_broker_session)

    async def start(self) -> None:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + self.id, "PLAINTEXT")
        data = znodes.encode_broker([endpoint], timestamp_ms=0)
        path = znodes.broker_path(self.id)
        await self.store.create(path, data, ephemeral=True, make_parents=True)
        stat = await self.store.exists(path)
        assert stat is not None
        self.ensemble.brokers[self.id] = FakeBroker(self.id, stat.czxid)
        self.ensemble.members[self.id] = self
        await self.controller.start()

    async def die(self) -> None:
        del self.ensemble.members[self.id], self.ensemble.brokers[self.id]
        await self.store.close()
        await self.controller.stop()


class Ensemble:
    """The brokers of one chroot, and how controllers reach them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.members: dict[int, Member] = {}
        self.brokers: dict[int, FakeBroker] = {}

    def update(self, brokers: Any) -> None:
        pass

    async def call(
        self, broker_id: int, request: Any, *, version: int | None = None, timeout_s: float
    ) -> Any:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ConnectionRefusedError(broker_id)
        return broker.answer(request)

    @property
    def store(self) -> ZooKeeperStore:
        return next(iter(self.members.values())).store

    def active(self) -> list[Member]:
        return [member for member in self.members.values() if member.controller.is_active]

    async def eventually(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.01)

    async def led(self, topic: str, count: int) -> None:
        """Every broker knows live leaders of all partitions."""
        await self.eventually(
            lambda: all(
                sum(
                    tp.topic == topic and row.leader in self.brokers
                    for tp, row in broker.metadata.items()
                )
                == count
                for broker in self.brokers.values()
            )
        )

    async def create_topic(self, name: str, assignment: list[list[int]]) -> None:
        data = znodes.encode_topic(Uuid.random(), assignment)
        await self.store.create(znodes.topic_path(name), data, make_parents=True)


@asynccontextmanager
async def cluster(zookeeper: ZooKeeperProcess, *broker_ids: int) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(zookeeper.address + fresh_chroot("controller"))
    for broker_id in broker_ids:
        await Member(ensemble, broker_id).start()
    await ensemble.eventually(lambda: bool(ensemble.active()))
    try:
        yield ensemble
    finally:
        for member in list(ensemble.members.values()):
            await member.die()


@in_loop
async def test_a_topic_gets_leaders_and_keeps_them_when_brokers_and_controllers_die(
    zookeeper: ZooKeeperProcess,
) -> None:
    async with cluster(zookeeper, 1, 2, 3) as ensemble:
        assignment = [[1 + (p + r) % 3 for r in range(3)] for p in range(30)]
        await ensemble.create_topic("t", assignment)
        await ensemble.led("t", 30)
        (first,) = ensemble.active()
        epoch = first.controller.epoch
        await first.die()
        await ensemble.eventually(lambda: bool(ensemble.active()))
        await ensemble.led("t", 30)
        (second,) = ensemble.active()
        assert second.controller.epoch == epoch + 1
        data, _ = await ensemble.store.get(znodes.state_path("t", 0))
        state = znodes.decode_state(data)
        assert first.id not in state.isr
        broker = ensemble.brokers[second.id]
        assert broker.hosted[TopicPartition("t", 0)].leader_epoch == state.leader_epoch


@in_loop
async def test_a_topic_is_deleted(zookeeper: ZooKeeperProcess) -> None:
    async with cluster(zookeeper, 1, 2) as ensemble:
        await ensemble.create_topic("t", [[1, 2]] * 20)
        await ensemble.led("t", 20)
        await ensemble.store.create(znodes.delete_topic_path("t"), make_parents=True)
        await ensemble.eventually(
            lambda: all(len(broker.deleted) == 20 for broker in ensemble.brokers.values())
        )
        async with asyncio.timeout(PATIENCE_S):
            while await ensemble.store.exists(znodes.delete_topic_path("t")) is not None:
                await asyncio.sleep(0.01)
        assert await ensemble.store.exists(znodes.topic_path("t")) is None


@in_loop
async def test_who_finds_its_node_gone_is_not_the_controller_any_more(
    zookeeper: ZooKeeperProcess,
) -> None:
    async with cluster(zookeeper, 1, 2) as ensemble:
        await ensemble.store.delete(znodes.CONTROLLER)
        # More than 2 if a session is lost meanwhile, as on a busy machine.
        await ensemble.eventually(
            lambda: [m.controller.epoch >= 2 for m in ensemble.active()] == [True]
        )


@in_loop
async def test_a_topic_of_thousands_of_partitions_takes_several_writes(
    zookeeper: ZooKeeperProcess,
) -> None:
    """Its states are more than ZooKeeper takes in one request (jute.maxbuffer, 1 MiB)."""
    name, count = "t" * 249, 5_000
    async with cluster(zookeeper, 1, 2, 3) as ensemble:
        assignment = [[1 + (p + r) % 3 for r in range(2)] for p in range(count)]
        await ensemble.create_topic(name, assignment)
        await ensemble.led(name, count)
        await ensemble.members[3].die()
        await ensemble.led(name, count)
        await Member(ensemble, 3).start()
        await ensemble.store.create(znodes.delete_topic_path(name), make_parents=True)
        async with asyncio.timeout(PATIENCE_S):
            while await ensemble.store.exists(znodes.topic_path(name)) is not None:
                await asyncio.sleep(0.01)
        for broker in ensemble.brokers.values():
            assert not [tp for tp in broker.hosted if tp.topic == name]
