"""A cluster of fake brokers with real controllers over one embedded store, in one loop.

A fake broker fences requests as a real one does, by controller epoch and broker epoch, and
remembers what it was told: the partitions it hosts and the metadata. It can be cut off, killed,
restarted, and made to answer errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.support.broker_session import BrokerSession
from tests.support.clock import FakeClock
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.cluster.controller_context import STRICT_MIN_ISR_FEATURE
from tidelog.controller.cluster.kafka_controller import NEWS_TIMEOUT_S, KafkaController
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import Create, NodeExists, Operation, SessionState
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.types import TopicPartition, Uuid

NEWS_TIMEOUT_MS = int(NEWS_TIMEOUT_S * 1000)
QUIET_ROUNDS: Final = 4


class FakeBroker:
    """What one life of a broker has been told."""

    def __init__(self, broker_id: int, epoch: int) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.controller_epoch = 0
        self.requests: list[Any] = []  # those it accepted, in order
        self.refused = 0
        self.hosted: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self.live_brokers: set[int] = set()
        self.deleted: list[TopicPartition] = []
        self.lost_dirs: set[TopicPartition] = set()  # partitions it cannot host
        self.deletion_fails = False

    def answer(self, request: Any) -> Any:
        code = self._fencing(request)
        if code is not ErrorCode.NONE:
            self.refused += 1
        else:
            self.requests.append(request)
        if isinstance(request, LeaderAndIsrRequest):
            return self._host(request) if not code else LeaderAndIsrResponse(error_code=code)
        if isinstance(request, UpdateMetadataRequest):
            return self._learn(request) if not code else UpdateMetadataResponse(error_code=code)
        assert isinstance(request, StopReplicaRequest)
        return self._stop(request) if not code else StopReplicaResponse(error_code=code)

    def _fencing(self, request: Any) -> ErrorCode:
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        if request.broker_epoch < self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE

    def _host(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            rows = []
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                known = self.hosted.get(partition)
                code = ErrorCode.NONE
                if partition in self.lost_dirs:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif known is None or known.leader_epoch <= state.leader_epoch:
                    self.hosted[partition] = state
                else:
                    code = ErrorCode.STALE_CONTROLLER_EPOCH
                rows.append(
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index, error_code=code
                    )
                )
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows))
        return LeaderAndIsrResponse(topics=topics)

    def _learn(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self.live_brokers = {broker.id for broker in request.live_brokers}
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == -2:
                    self.metadata.pop(partition, None)
                else:
                    self.metadata[partition] = state
        return UpdateMetadataResponse()

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        rows = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                code = ErrorCode.NONE
                if state.delete_partition and self.deletion_fails:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif state.delete_partition:
                    self.deleted.append(partition)
                    self.hosted.pop(partition, None)
                rows.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=code,
                    )
                )
        return StopReplicaResponse(partition_errors=rows)

    def of_kind(self, kind: type) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]


class FakePeers:
    """One controller's way to the brokers."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.known: Mapping[int, Any] = {}

    def update(self, brokers: Mapping[int, Any]) -> None:
        self.known = dict(brokers)

    async def call(
        self, broker_id: int, request: Any, *, version: int | None = None, timeout_s: float
    ) -> Any:
        assert broker_id in self.known
        self._cluster.calls += 1
        broker = self._cluster.brokers.get(broker_id)
        if broker is None or broker_id in self._cluster.cut_off:
            raise ConnectionRefusedError(broker_id)
        request.encode(version)  # it is a message that can be sent
        return broker.answer(request)


class FakeCluster:
    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.clock = FakeClock()
        self.store = EmbeddedStore.open(directory, clock=self.clock)
        # What these tests show has nothing to do with disks, nor with the thread that writes them.
        self.store._database._encode = lambda queue: (b"", 0)  # type: ignore[method-assign]
        self.settings = BrokerConfig({"auto.leader.rebalance.enable": "false", **(settings or {})})
        self.brokers: dict[int, FakeBroker] = {}  # those whose process runs
        self.sessions: dict[int, BrokerSession] = {}
        self.controllers: dict[int, KafkaController] = {}
        self.peers: dict[int, FakePeers] = {}
        self.cut_off: set[int] = set()
        self.written: list[tuple[int, Operation]] = []  # by which broker; only what was accepted
        self.calls = 0
        self.store.multi_now([Create(path, make_parents=True) for path in znodes.PERSISTENT_PATHS])

    async def start(
        self,
        *broker_ids: int,
        racks: Mapping[int, str] | None = None,
        strict_min_isr: bool = False,
        min_insync_replicas: int | None = None,
        clean_shutdown: bool = True,
        settle: bool = True,
    ) -> None:
        for broker_id in broker_ids:
            session = BrokerSession(self.store, partial(self._note, broker_id))
            self.sessions[broker_id] = session
            await self.register(
                broker_id,
                rack=(racks or {}).get(broker_id),
                strict_min_isr=strict_min_isr,
                min_insync_replicas=min_insync_replicas,
                clean_shutdown=clean_shutdown,
            )
            self.peers[broker_id] = FakePeers(self)
            controller = KafkaController(
                session,
                broker_id,
                settings=self.settings,
                peers=self.peers[broker_id],
                clock=self.clock,
                timer=self.clock,
            )
            self.controllers[broker_id] = controller
            await controller.start()
            if settle:
                await self.settle()

    def _note(self, broker_id: int, operations: Sequence[Operation]) -> None:
        self.written += [(broker_id, operation) for operation in operations]

    async def register(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        strict_min_isr: bool = False,
        min_insync_replicas: int | None = None,
        clean_shutdown: bool = True,
    ) -> None:
        """Begins a life of the broker."""
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id, "PLAINTEXT")
        data = znodes.encode_broker(
            [endpoint],
            timestamp_ms=0,
            rack=rack,
            features={STRICT_MIN_ISR_FEATURE: 1} if strict_min_isr else {},
            clean_shutdown=clean_shutdown,
            min_insync_replicas=min_insync_replicas,
        )
        path = znodes.broker_path(broker_id)
        await self.sessions[broker_id].create(path, data, ephemeral=True)
        _, stat = await self.store.get(path)
        self.brokers[broker_id] = FakeBroker(broker_id, stat.czxid)

    async def kill(self, *broker_ids: int, settle: bool = True) -> None:
        """The process is gone, and its session with it."""
        for broker_id in broker_ids:
            del self.brokers[broker_id]
            controller = self.controllers.pop(broker_id)
            controller.on_broker_session(SessionState.EXPIRED)
            await controller.stop()
            session = self.sessions.pop(broker_id)
            await session.close()
        if settle:
            await self.settle()

    async def pause(self, broker_id: int) -> None:
        """The process stands still until the store has given it up, and then goes on unaware."""
        session = self.sessions[broker_id]
        session.deaf = True
        await session.expire()
        session.renew()
        await self.settle()

    async def wake(self, broker_id: int, **registration: Any) -> None:
        """A paused broker learns that its session has expired, and registers again."""
        session, controller = self.sessions[broker_id], self.controllers[broker_id]
        await session.expire()
        controller.on_broker_session(SessionState.EXPIRED)
        session.renew()
        session.deaf = False
        await self.register(broker_id, **registration)
        controller.on_broker_session(SessionState.CONNECTED)
        await self.settle()

    async def settle(self) -> None:
        """Until nothing happens any more."""
        before, quiet = None, 0
        for _ in range(10_000):
            for controller in list(self.controllers.values()):
                await controller.settled()
            for _ in range(3):
                await asyncio.sleep(0)
            now = (self.calls, self.store._database.tree.zxid)
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet >= QUIET_ROUNDS:
                return
        raise AssertionError("the cluster does not come to rest")

    async def meanwhile(self, story: Coroutine[Any, Any, Any], *, ms: int) -> None:
        """Runs the story, time going on in steps for those who wait for it."""
        task = asyncio.get_running_loop().create_task(story)
        for _ in range(100):
            await self.pass_time(ms=0)
            if task.done():
                break
            self.clock.advance(ms=ms)
        await task

    async def pass_time(self, *, ms: int) -> None:
        """Without waiting for the cluster to come to rest."""
        self.clock.advance(ms=ms)
        for _ in range(50):
            await asyncio.sleep(0)

    @property
    def active(self) -> KafkaController:
        active = [c for c in self.controllers.values() if c.is_active]
        assert len(active) == 1, [c.epoch for c in active]
        return active[0]

    @property
    def active_id(self) -> int:
        return next(i for i, c in self.controllers.items() if c is self.active)

    async def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        configs: Mapping[str, str] | None = None,
    ) -> Uuid:
        """As an admin tool does: the configuration, then the assignment."""
        topic_id = Uuid.random()
        config_path = znodes.config_path("topics", name)
        try:
            await self.store.create(config_path, znodes.encode_config(configs or {}))
        except NodeExists:
            await self.store.set(config_path, znodes.encode_config(configs or {}))
        await self.store.create(znodes.topic_path(name), znodes.encode_topic(topic_id, assignment))
        await self.settle()
        return topic_id

    async def delete_topic(self, name: str) -> None:
        await self.store.create(znodes.delete_topic_path(name))
        await self.settle()

    async def configure(self, name: str, configs: Mapping[str, str]) -> None:
        await self.store.set(znodes.config_path("topics", name), znodes.encode_config(configs))
        await self.notify_config_change("topics", name)

    async def configure_brokers(self, name: str, configs: Mapping[str, str]) -> None:
        """One broker, or all of them by DEFAULT_ENTITY."""
        path, data = znodes.config_path("brokers", name), znodes.encode_config(configs)
        if await self.store.exists(path) is None:
            await self.store.create(path, data)
        else:
            await self.store.set(path, data)
        await self.notify_config_change("brokers", name)

    async def notify_config_change(self, entity_type: str, name: str) -> None:
        path = f"{znodes.CONFIG_CHANGES}/config_change_"
        data = znodes.encode_config_change(entity_type, name)
        await self.store.create(path, data, sequence=True)
        await self.settle()

    async def state(self, topic: str, partition: int = 0) -> znodes.LeaderIsrAndControllerEpoch:
        data, _ = await self.store.get(znodes.state_path(topic, partition))
        return znodes.decode_state(data)

    async def version(self, topic: str, partition: int = 0) -> int:
        _, stat = await self.store.get(znodes.state_path(topic, partition))
        return stat.version

    async def assignment(self, topic: str) -> znodes.TopicAssignment:
        data, _ = await self.store.get(znodes.topic_path(topic))
        return znodes.decode_topic(data)

    async def topic_exists(self, topic: str) -> bool:
        return await self.store.exists(znodes.topic_path(topic)) is not None

    async def alter_isr(
        self,
        topic: str,
        isr: Sequence[int],
        *,
        partition: int = 0,
        to: KafkaController | None = None,
        **changed: Any,
    ) -> AlterPartitionResponsePartitionData:
        """What the partition's leader asks for; fields of the request can be changed."""
        response = await self.ask_for_isr(topic, isr, partition=partition, to=to, **changed)
        assert response.error_code == ErrorCode.NONE, response.error_code
        return response.topics[0].partitions[0]

    async def ask_for_isr(
        self,
        topic: str,
        isr: Sequence[int],
        *,
        partition: int = 0,
        to: KafkaController | None = None,
        version: int = 3,
        **changed: Any,
    ) -> AlterPartitionResponse:
        state = await self.state(topic, partition)
        assignment = await self.assignment(topic)
        broker_id = changed.pop("broker_id", state.leader)
        epochs = {i: broker.epoch for i, broker in self.brokers.items()}
        row = AlterPartitionRequestPartitionData(
            partition_index=partition,
            leader_epoch=changed.pop("leader_epoch", state.leader_epoch),
            partition_epoch=changed.pop("partition_epoch", await self.version(topic, partition)),
            leader_recovery_state=changed.pop("recovery", state.leader_recovery_state),
            new_isr=list(isr) if version < 3 else [],
            new_isr_with_epochs=[
                BrokerState(
                    broker_id=i, broker_epoch=changed.get("member_epoch", epochs.get(i, -1))
                )
                for i in isr
                if version >= 3
            ],
        )
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=changed.pop("broker_epoch", epochs.get(broker_id, -1)),
            topics=[
                AlterPartitionRequestTopicData(
                    topic_name=topic,
                    topic_id=changed.pop("topic_id", assignment.topic_id),
                    partitions=[row],
                )
            ],
        )
        response = await (to or self.active).alter_partition(request, version)
        await self.settle()
        return response

    async def shut_down(
        self, broker_id: int, to: KafkaController | None = None
    ) -> ControlledShutdownResponse:
        request = ControlledShutdownRequest(
            broker_id=broker_id, broker_epoch=self.brokers[broker_id].epoch
        )
        controller = to or self.active
        asked = asyncio.ensure_future(controller.controlled_shutdown(request))
        await self.settle()
        if not asked.done():
            await self.pass_time(ms=NEWS_TIMEOUT_MS)  # some broker does not answer
        return await asked

    async def close(self) -> None:
        for controller in self.controllers.values():
            await controller.stop()
        for session in self.sessions.values():
            await session.close()
        await self.store.close()
