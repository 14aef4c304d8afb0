"""A broker of a cluster as it opens, over a session with the embedded store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from tests.support.broker_session import BrokerSession
from tests.support.clock import FakeClock
from tests.support.config_broker import found_cluster
from tests.support.loop_turns import LoopTurns, counted_slices
from tests.support.metadata import in_loop
from tidelog.broker.cluster_server import ClusterServer
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import Create, MetadataStore, SessionState
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.errors import ErrorCode, KafkaError, StartupError
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.types import Uuid


class LastingSession(BrokerSession):
    """Never ends, so that there is nothing to tell of it."""

    def on_session(self, listener: object) -> None:
        pass


class ServerOnStore(ClusterServer):
    def __init__(self, config: BrokerConfig, store: EmbeddedStore) -> None:
        super().__init__(config, asyncio.get_running_loop())
        self._session = LastingSession(store)

    def _connect(self, config: BrokerConfig) -> ZooKeeperStore:
        return cast(ZooKeeperStore, self._session)


@asynccontextmanager
async def opened(
    tmp_path: Path, default_overrides: Mapping[str, str]
) -> AsyncIterator[ClusterServer]:
    """A broker that starts where something has been set for all brokers."""
    metadata, logs = tmp_path / "metadata", tmp_path / "logs"
    metadata.mkdir()
    store = found_cluster(metadata)
    path = znodes.config_path("brokers", "<default>")
    await store.create(path, znodes.encode_config(default_overrides))
    server = ServerOnStore(BrokerConfig({"log.dirs": str(logs), "broker.id": "1"}), store)
    server.open()
    try:
        yield server
    finally:
        await server.close()
        await store.close()


@in_loop
async def test_a_default_that_is_removed_does_not_stay_in_force_at_the_controller(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, {"unclean.leader.election.enable": "true"}) as server:
        store, controller = server.broker.store, server.broker.controller
        assert controller is not None
        await store.set(znodes.config_path("brokers", "<default>"), znodes.encode_config({}))
        await leave_without_leader(store, "t", in_sync=9, other=1)
        await controller.start()
        await controller.settled()
        assert controller.is_active
        data, _ = await store.get(znodes.state_path("t", 0))
        assert znodes.decode_state(data).leader == -1, "broker 1 was never in sync"


@in_loop
async def test_logs_are_loaded_by_what_was_set_while_brokers_ran(tmp_path: Path) -> None:
    async with opened(tmp_path, {"producer.id.expiration.ms": "5000"}) as server:
        assert server.broker.logs._environment.producer_expiration_ms == 5000


@in_loop
async def test_only_a_broker_that_lost_its_session_reads_all_settings_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    def session_began(*, is_new: bool = True) -> None:
        told.append(is_new)

    async with opened(tmp_path, {}) as server:
        monkeypatch.setattr(server._config_changes, "session_began", session_began)
        for lost in (SessionState.DISCONNECTED, SessionState.EXPIRED, SessionState.DISCONNECTED):
            server._session_changed(lost)
            server._session_changed(SessionState.CONNECTED)
    assert told == [False, True, False]


@pytest.mark.parametrize("was_clean", [True, False])
@in_loop
async def test_a_stop_before_the_controller_has_heard_of_a_crash_is_not_clean(
    tmp_path: Path, was_clean: bool
) -> None:
    marker = tmp_path / "logs" / ".kafka_cleanshutdown"
    marker.parent.mkdir()
    if was_clean:
        marker.write_text("")
    async with opened(tmp_path, {}):
        assert not marker.exists()
    assert marker.exists() is was_clean


async def leave_without_leader(
    store: MetadataStore, topic: str, *, in_sync: int, other: int
) -> None:
    """A partition whose only replica in sync is gone, while another is there."""
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT")
    await store.multi(
        [
            Create(znodes.broker_path(other), znodes.encode_broker([endpoint], timestamp_ms=0)),
            Create(
                znodes.topic_path(topic), znodes.encode_topic(Uuid.random(), [[in_sync, other]])
            ),
            Create(
                znodes.state_path(topic, 0),
                znodes.encode_state(in_sync, 0, 0, [in_sync]),
                make_parents=True,
            ),
        ]
    )


@in_loop
async def test_topics_that_a_new_zookeeper_does_not_know_keep_a_broker_from_starting(
    tmp_path: Path,
) -> None:
    metadata, logs = tmp_path / "metadata", tmp_path / "logs"
    metadata.mkdir()
    (logs / "t-0").mkdir(parents=True)
    store = EmbeddedStore.open(metadata, clock=FakeClock())
    server = ServerOnStore(BrokerConfig({"log.dirs": str(logs), "broker.id": "1"}), store)
    with pytest.raises(StartupError, match="knows of no cluster"):
        server.open()
    assert next(store.subtree(znodes.CLUSTER_ID), None) is None
    await store.close()


def told_of(topics: int) -> UpdateMetadataRequest:
    states = [
        UpdateMetadataTopicState(
            topic_name=f"t{number}",
            topic_id=Uuid.random(),
            partition_states=[
                UpdateMetadataPartitionState(partition_index=0, leader=2, replicas=[2], isr=[2])
            ],
        )
        for number in range(topics)
    ]
    return UpdateMetadataRequest(topic_states=states)


@in_loop
async def test_topics_that_the_controller_tells_of_are_learned_a_slice_a_turn(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, {}) as server, LoopTurns() as turns:
        cluster = server.broker.cluster
        assert cluster is not None
        server.broker.slices = counted_slices(20)
        await cluster.update_metadata(told_of(100), turns.note)
        assert (turns.total, len(server.broker.topics.topics)) == (100, 100)
        assert turns.most <= 20


@in_loop
async def test_a_controller_that_is_replaced_meanwhile_is_not_heard_out(tmp_path: Path) -> None:
    async with opened(tmp_path, {}) as server:
        cluster = server.broker.cluster
        assert cluster is not None

        def must_go_on() -> None:
            if len(server.broker.topics.topics) == 30:
                raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)

        with pytest.raises(KafkaError):
            await cluster.update_metadata(told_of(100), must_go_on)
        assert len(server.broker.topics.topics) == 30


@pytest.mark.parametrize("news", [{"controller_epoch": 2}, {"broker_epoch": 2}])
@in_loop
async def test_a_topic_that_was_deleted_unseen_is_forgotten(
    tmp_path: Path, news: dict[str, int]
) -> None:
    """While the session was away, or by a controller that died before it told of it."""
    async with opened(tmp_path, {}) as server:
        cluster, store = server.broker.cluster, server.broker.store
        assert cluster is not None
        told = told_of(2)
        told.controller_epoch = told.broker_epoch = 1
        for topic in told.topic_states:
            encoded = znodes.encode_topic(topic.topic_id, [[2]])
            await store.create(znodes.topic_path(topic.topic_name), encoded)
        await cluster.update_metadata(told, lambda: None)
        await asyncio.gather(*cluster._tasks)
        await store.delete(znodes.topic_path("t1"))
        again = UpdateMetadataRequest(controller_epoch=1, broker_epoch=1)
        await cluster.update_metadata(again, lambda: None)
        assert not cluster._tasks, "this controller tells of all deletions itself"
        for name, epoch in news.items():
            setattr(again, name, epoch)
        await cluster.update_metadata(again, lambda: None)
        await asyncio.gather(*cluster._tasks)
        assert [*server.broker.topics.topics] == ["t0"]


@in_loop
async def test_a_topic_is_not_forgotten_by_what_an_old_read_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, {}) as server:
        cluster, store = server.broker.cluster, server.broker.store
        assert cluster is not None
        told = told_of(1)
        encoded = znodes.encode_topic(told.topic_states[0].topic_id, [[2]])
        await store.create(znodes.topic_path("t0"), encoded)

        async def of_a_server_that_lags(*_: object, **__: object) -> list[str]:
            return []

        monkeypatch.setattr(store, "children", of_a_server_that_lags)
        await cluster.update_metadata(told, lambda: None)
        await asyncio.gather(*cluster._tasks)
        assert [*server.broker.topics.topics] == ["t0"]
