"""Topics of a cluster as admin clients change them: the store is asked, the controller does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_cluster import FakeBroker, FakeCluster
from tests.support.metadata import in_loop, refused
from tidelog.controller import znodes
from tidelog.controller.cluster import cluster_topics
from tidelog.controller.cluster.cluster_topics import ClusterTopics
from tidelog.controller.placement import PlacementBroker
from tidelog.controller.topics import PartitionImage, TopicChange, TopicImage
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.types import Uuid


class TopicsStage:
    """Broker 1 with its topics, fed as UpdateMetadata would feed them."""

    def __init__(self, cluster: FakeCluster, broker_id: int = 1) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.asked: list[CreateTopicsRequest] = []
        self.answer = ErrorCode.NONE
        self.topics = ClusterTopics(
            cluster.store,
            broker_id,
            cluster.controllers[broker_id],
            settings=cluster.settings,
            peers=self,
            random_below=lambda bound: 0,
        )
        self.topics.brokers = [PlacementBroker(b) for b in sorted(cluster.brokers)]
        self.changes: list[tuple[TopicChange, str]] = []
        self.topics.on_change(lambda change, image: self.changes.append((change, image.name)))

    def update(self, brokers: Any) -> None:
        raise AssertionError("nobody is asked to be reached")

    async def call(
        self, broker_id: int, request: Any, *, version: int | None = None, timeout_s: float
    ) -> Any:
        """Only the controller is called, to create a topic."""
        assert broker_id == self.cluster.active_id
        if self.answer is ErrorCode.NETWORK_EXCEPTION:
            raise ConnectionResetError
        self.asked.append(request)
        (topic,) = request.topics
        if self.answer is ErrorCode.NONE:
            await self.cluster.create_topic(topic.name, [[2, 1]] * topic.num_partitions)
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name, error_code=self.answer)]
        )

    async def done(self, change: Any) -> Any:
        """The result of a change, metadata coming in meanwhile."""
        task = asyncio.get_running_loop().create_task(change)
        for _ in range(50):
            await self.cluster.settle()
            self.feed(self.cluster.brokers[self.broker_id])
            if task.done():
                break
        return await asyncio.wait_for(task, 60)

    def feed(self, broker: FakeBroker) -> None:
        ids: dict[str, Uuid] = {}
        for request in broker.of_kind(UpdateMetadataRequest):
            ids.update({t.topic_name: t.topic_id for t in request.topic_states})
        by_topic: dict[str, list[PartitionImage]] = {}
        for (topic, partition), row in sorted(broker.metadata.items()):
            by_topic.setdefault(topic, []).append(
                PartitionImage(
                    partition, row.leader, row.leader_epoch, row.replicas, row.isr, row.zk_version
                )
            )
        for name in self.topics.topics.keys() - by_topic.keys():
            self.topics.drop(name)
        for name, partitions in by_topic.items():
            self.topics.put(TopicImage(name, ids[name], partitions, {}))


@asynccontextmanager
async def stage(tmp_path: Path, broker_id: int = 1) -> AsyncIterator[TopicsStage]:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3)
    try:
        yield TopicsStage(cluster, broker_id)
    finally:
        await cluster.close()


@in_loop
async def test_creation_writes_what_kafkas_admin_manager_writes_and_waits_for_leaders(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        mark = len(on.cluster.written)
        image = await on.done(on.topics.create("t", [[2, 3], [3, 1]], {"retention.ms": "5"}))
        assert [partition.leader for partition in image.partitions] == [2, 3]
        assert (await on.cluster.assignment("t")).topic_id == image.topic_id
        data, _ = await on.cluster.store.get("/config/topics/t")
        assert znodes.decode_config(data) == {"retention.ms": "5"}
        assert on.changes == [(TopicChange.CREATED, "t")]
        by = {broker for broker, _ in on.cluster.written[mark:]}
        assert by == {1}, "the states were written by the controller"


@in_loop
async def test_creation_is_refused_for_what_is_there_already(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.cluster.create_topic("a.b", [[1]])
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):  # though the image does not show it yet
            await on.topics.create("a.b", [[1]])
        with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
            await on.topics.create("a_b", [[1]])
        await on.done(on.topics.create("t", [[1]]))
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
            await on.topics.create("t", [[1]])


@in_loop
async def test_a_topic_on_its_way_out_cannot_be_made_again_yet(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.cluster.create_topic("t", [[1, 3]])
        await on.cluster.kill(3)
        await on.cluster.delete_topic("t")
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS) as raised:
            await on.topics.create("t", [[1]])
        assert "marked for deletion" in (raised.value.message or "")


@in_loop
async def test_deletion_waits_until_brokers_no_longer_serve_the_topic(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        made = await on.done(on.topics.create("t", [[1, 2]]))
        with refused(ErrorCode.UNKNOWN_TOPIC_ID):
            await on.topics.delete("t", Uuid.random())
        deleted = await on.done(on.topics.delete("t", made.topic_id))
        assert deleted.topic_id == made.topic_id
        assert not await on.cluster.topic_exists("t")
        assert on.changes[-1] == (TopicChange.DELETED, "t")
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            await on.topics.delete("t")


@in_loop
async def test_partitions_are_added(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        image = await on.done(on.topics.create("t", [[1, 2]]))
        more = on.topics.place_more(image, 2)
        grown = await on.done(on.topics.add_partitions("t", 3, more))
        assert grown.assignment == [[1, 2], *more]
        assert on.changes[-1] == (TopicChange.PARTITIONS_ADDED, "t")
        with refused(ErrorCode.INVALID_PARTITIONS):
            await on.topics.add_partitions("t", 3, [])


@in_loop
async def test_partitions_are_not_added_while_others_move_or_the_topic_goes(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.done(on.topics.create("t", [[1, 2]]))
        stored = await on.cluster.assignment("t")
        moving = stored._replace(partitions={0: [3, 1, 2]}, adding_replicas={0: [3]})
        await on.cluster.store.set("/brokers/topics/t", znodes.encode_assignment(moving))
        with refused(ErrorCode.REASSIGNMENT_IN_PROGRESS):
            await on.topics.add_partitions("t", 2, [[1, 2]])
        await on.cluster.kill(2)
        await on.cluster.delete_topic("t")
        with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
            await on.topics.add_partitions("t", 2, [[1, 2]])


@in_loop
async def test_auto_creation_on_the_controller(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        image = await on.done(on.topics.auto_create("t"))
        assert len(image.partitions) == 1
        assert (await on.topics.auto_create("t")).topic_id == image.topic_id
        assert on.asked == []


@in_loop
async def test_auto_creation_elsewhere_asks_the_controller(tmp_path: Path) -> None:
    async with stage(tmp_path, broker_id=2) as on:
        both = asyncio.gather(on.topics.auto_create("t"), on.topics.auto_create("t"))

        async def made() -> TopicImage:
            first, second = await both
            assert first is second
            return first

        image = await on.done(made())
        assert image.partitions[0].leader == 2
        assert len(on.asked) == 1


@in_loop
async def test_internal_topics_get_all_the_replicas_they_should_have(tmp_path: Path) -> None:
    """On a lone broker they get what is possible; a cluster waits for its brokers."""
    async with stage(tmp_path, broker_id=2) as on:
        await on.done(on.topics.auto_create("__consumer_offsets"))
        (topic,) = on.asked[0].topics
        assert (topic.num_partitions, topic.replication_factor) == (50, 3)
        assert {c.name: c.value for c in topic.configs}["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
@in_loop
async def test_auto_creation_tells_what_the_controller_says(
    tmp_path: Path, answer: ErrorCode, code: ErrorCode
) -> None:
    async with stage(tmp_path, broker_id=2) as on:
        on.answer = answer
        with refused(code):
            await on.topics.auto_create("t")
        with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
            await on.topics.auto_create("no good")


@in_loop
async def test_auto_creation_of_a_topic_on_its_way_out_is_to_be_asked_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.cluster.create_topic("t", [[1, 3]])
        await on.cluster.kill(3)
        await on.cluster.delete_topic("t")
        with refused(ErrorCode.LEADER_NOT_AVAILABLE):
            await on.topics.auto_create("t")


@in_loop
async def test_auto_creation_that_no_metadata_follows_is_given_up_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, broker_id=2) as on:
        with monkeypatch.context() as impatient:
            impatient.setattr(cluster_topics, "AUTO_CREATION_TIMEOUT_MS", 0)
            with refused(ErrorCode.LEADER_NOT_AVAILABLE):
                await asyncio.wait_for(on.topics.auto_create("t"), 5)
        image = await on.done(on.topics.auto_create("t"))
        assert image.name == "t"
