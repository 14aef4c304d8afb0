"""TopicCatalogue: the image in memory, the nodes in the store, and who is told when."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.metadata import (
    DEFAULT_SETTINGS,
    contents,
    in_loop,
    no_space,
    open_catalogue,
    open_store,
    refused,
)
from tidelog.controller import znodes
from tidelog.controller.metadata_store import Create
from tidelog.controller.topics import (
    PartitionImage,
    TopicCatalogue,
    TopicChange,
    TopicImage,
    within,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import NO_LEADER, Uuid

TOPIC_ID = Uuid.parse("qaAWHYOVSP-HRC6iO0I1wA")


def told(catalogue: TopicCatalogue) -> list[tuple[TopicChange, TopicImage]]:
    changes: list[tuple[TopicChange, TopicImage]] = []
    catalogue.on_change(lambda change, image: changes.append((change, image)))
    return changes


@in_loop
async def test_a_created_topic_is_in_the_image_and_in_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    image = await catalogue.create("t", [[0], [0]], {"retention.ms": "5000"})
    assert catalogue.topics == {"t": image}
    assert catalogue.by_id == {image.topic_id: image}
    assert image.partitions == [
        PartitionImage(0, 0, 0, [0], [0], 0),
        PartitionImage(1, 0, 0, [0], [0], 0),
    ]
    nodes = contents(store)
    topic = znodes.decode_topic(nodes["/brokers/topics/t"])
    assert topic == (image.topic_id, {0: [0], 1: [0]}, {}, {})
    state = znodes.decode_state(nodes["/brokers/topics/t/partitions/1/state"])
    assert state == znodes.LeaderIsrAndControllerEpoch(0, 0, 1, [0])
    assert znodes.decode_config(nodes["/config/topics/t"]) == {"retention.ms": "5000"}
    await store.close()


@in_loop
async def test_a_restart_finds_the_topics_and_leads_them_with_a_new_epoch(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    before = await catalogue.create("t", [[0]] * 12, {"retention.ms": "5000"})
    await store.close()
    for epoch in (1, 2):
        again = open_store(tmp_path)
        catalogue = open_catalogue(again)
        image = catalogue.topics["t"]
        assert (image.topic_id, image.configs) == (before.topic_id, before.configs)
        assert [partition.partition for partition in image.partitions] == list(range(12))
        assert {partition.leader_epoch for partition in image.partitions} == {epoch}
        assert {partition.partition_epoch for partition in image.partitions} == {epoch}
        data, stat = await again.get("/brokers/topics/t/partitions/11/state")
        assert znodes.decode_state(data) == znodes.LeaderIsrAndControllerEpoch(
            0, epoch, epoch + 1, [0]
        )
        assert stat.version == epoch
        await again.close()


@in_loop
async def test_listeners_are_told_after_the_write_is_durable(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    seen: list[bool] = []
    catalogue.on_change(
        lambda change, image: seen.append("/brokers/topics/t" in contents(store, znodes.TOPICS))
    )
    changes = told(catalogue)
    image = await catalogue.create("t", [[0]])
    assert seen == [True]
    assert changes == [(TopicChange.CREATED, image)]
    await store.close()


@in_loop
async def test_a_topic_of_another_id_by_then_is_not_deleted(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    first = await catalogue.create("t", [[0]])
    outcomes = await asyncio.gather(
        catalogue.delete("t"),
        catalogue.create("t", [[0]]),
        catalogue.delete("t", first.topic_id),
        catalogue.delete("gone", first.topic_id),
        return_exceptions=True,
    )
    for outcome in outcomes[2:]:
        assert isinstance(outcome, KafkaError)
        assert outcome.code == ErrorCode.UNKNOWN_TOPIC_ID
    second = catalogue.topics["t"]
    assert await catalogue.delete("t", second.topic_id) is second
    await store.close()


@in_loop
async def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    before = contents(store)
    image = await catalogue.create("t", [[0], [0]], {"retention.ms": "5000"})
    changes = told(catalogue)
    assert await catalogue.delete("t") is image
    assert contents(store) == before
    assert catalogue.topics == {}
    assert catalogue.by_id == {}
    assert changes == [(TopicChange.DELETED, image)]
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await catalogue.delete("t")
    again = await catalogue.create("t", [[0]])
    assert again.topic_id != image.topic_id
    await store.close()


@in_loop
async def test_added_partitions_come_behind_the_others(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    before = await catalogue.create("t", [[0]])
    changes = told(catalogue)
    image = await catalogue.add_partitions("t", 3, [[0], [0]])
    assert image.topic_id == before.topic_id
    assert [partition.partition for partition in image.partitions] == [0, 1, 2]
    assert before.assignment == [[0]]
    assert changes == [(TopicChange.PARTITIONS_ADDED, image)]
    nodes = contents(store)
    assert znodes.decode_topic(nodes["/brokers/topics/t"]).partitions == {0: [0], 1: [0], 2: [0]}
    assert "/brokers/topics/t/partitions/2/state" in nodes
    await store.close()
    again = open_store(tmp_path)
    assert open_catalogue(again).topics["t"].assignment == [[0]] * 3
    await again.close()


@in_loop
async def test_an_assignment_made_for_fewer_partitions_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    await catalogue.create("t", [[0]])
    results = await asyncio.gather(
        catalogue.add_partitions("t", 3, [[0], [0]]),
        catalogue.add_partitions("t", 5, [[0]] * 4),
        catalogue.add_partitions("t", 3, [[0], [0]]),
        return_exceptions=True,
    )
    assert isinstance(results[0], TopicImage)
    codes = [getattr(result, "code", None) for result in results]
    assert codes == [None, ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_PARTITIONS]
    assert len(catalogue.topics["t"].partitions) == 3
    await store.close()


@in_loop
async def test_of_topics_made_at_once_only_the_first_of_those_that_collide_is_made(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    results = await asyncio.gather(
        *(catalogue.create(name, [[0]]) for name in ("a.b", "a_b", "a.b", "ab")),
        return_exceptions=True,
    )
    codes = [getattr(result, "code", None) for result in results]
    assert codes == [
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        None,
    ]
    assert sorted(catalogue.topics) == ["a.b", "ab"]
    await store.close()


@in_loop
async def test_a_collision_ends_with_the_other_topic(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    await catalogue.create("a.b", [[0]])
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        catalogue.must_be_creatable("a_b")
    await catalogue.delete("a.b")
    catalogue.must_be_creatable("a_b")
    await store.close()


@in_loop
async def test_changes_of_one_topic_happen_in_the_order_asked_for(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    changes = told(catalogue)
    await asyncio.gather(
        catalogue.create("t", [[0]]),
        catalogue.add_partitions("t", 2, [[0]]),
        catalogue.delete("t"),
        catalogue.create("t", [[0]]),
    )
    assert [change for change, _ in changes] == [
        TopicChange.CREATED,
        TopicChange.PARTITIONS_ADDED,
        TopicChange.DELETED,
        TopicChange.CREATED,
    ]
    await store.close()


@in_loop
async def test_a_caller_that_gives_up_does_not_stop_the_change(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    making = asyncio.ensure_future(catalogue.create("t", [[0]]))
    await asyncio.sleep(0)
    making.cancel()
    await catalogue.auto_create("t")
    assert list(catalogue.topics) == ["t"]
    await store.close()


@in_loop
async def test_a_full_disk_leaves_the_image_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    changes = told(catalogue)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            await catalogue.create("t", [[0]])
    assert catalogue.topics == {}
    assert changes == []
    await catalogue.create("t", [[0]])
    await store.close()


@in_loop
async def test_auto_creation_makes_a_topic_once_with_the_defaults(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store, settings={**DEFAULT_SETTINGS, "num.partitions": 3})
    images = await asyncio.gather(*(catalogue.auto_create("t") for _ in range(5)))
    assert len({id(image) for image in images}) == 1
    assert images[0].assignment == [[0]] * 3
    assert await catalogue.auto_create("t") is images[0]
    await store.close()


@in_loop
async def test_internal_topics_are_made_with_their_own_settings_as_far_as_one_broker_can(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    offsets = await catalogue.auto_create("__consumer_offsets")
    assert offsets.is_internal
    assert offsets.assignment == [[0]] * 50
    assert offsets.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    transactions = await catalogue.auto_create("__transaction_state")
    assert transactions.configs["cleanup.policy"] == "compact"
    assert transactions.configs["min.insync.replicas"] == "1"
    await store.close()


@in_loop
async def test_auto_creation_refuses_what_cannot_be(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(
        store, settings={**DEFAULT_SETTINGS, "default.replication.factor": 3}
    )
    with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
        await catalogue.auto_create("t")
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        await catalogue.auto_create("t t")
    await store.close()


@in_loop
async def test_what_a_client_is_told_of_a_missing_topic(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    assert catalogue.missing_topic_error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert catalogue.missing_topic_error("t t") is ErrorCode.INVALID_TOPIC_EXCEPTION
    await store.close()


@in_loop
async def test_overrides_left_behind_by_a_deleted_topic_are_replaced(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    await store.create("/config/topics/t", znodes.encode_config({"retention.ms": "1"}))
    await catalogue.create("t", [[0]], {"segment.bytes": "1000000"})
    data, _ = await store.get("/config/topics/t")
    assert znodes.decode_config(data) == {"segment.bytes": "1000000"}
    await store.close()


@in_loop
async def test_adopted_topics_go_on_from_their_epochs(tmp_path: Path) -> None:
    """A partition of another broker gets no leader, and its epoch stays."""
    store = open_store(tmp_path)
    catalogue = open_catalogue(store)
    partitions = [
        PartitionImage(0, 0, 7, [0], [0], 0),
        PartitionImage(1, NO_LEADER, 3, [5], [5], 0),
    ]
    mark = Create("/mark")
    catalogue.adopt([TopicImage("old", TOPIC_ID, partitions, {"retention.ms": "-1"})], [mark])
    catalogue.start_broker_epoch()
    image = catalogue.topics["old"]
    assert catalogue.by_id[TOPIC_ID] is image
    assert [(each.leader, each.leader_epoch) for each in image.partitions] == [(0, 8), (-1, 3)]
    assert await store.exists("/mark") is not None
    await store.close()
    again = open_store(tmp_path)
    image = open_catalogue(again).topics["old"]
    assert [(each.leader, each.leader_epoch) for each in image.partitions] == [(0, 9), (-1, 3)]
    assert image.configs == {"retention.ms": "-1"}
    await again.close()


@in_loop
async def test_what_an_older_kafka_left_is_completed(tmp_path: Path) -> None:
    """No topic id before 2.8, and no state while its controller had not got to the partition."""
    store = open_store(tmp_path)
    open_catalogue(store)
    old = b'{"version":1,"partitions":{"0":[0],"1":[0]}}'
    state = znodes.encode_state(0, 5, 1, [0])
    store.multi_now(
        [
            Create("/brokers/topics/old", old),
            Create(znodes.state_path("old", 0), state, make_parents=True),
        ]
    )
    catalogue = TopicCatalogue(store, 0, settings=DEFAULT_SETTINGS)
    catalogue.load()
    catalogue.start_broker_epoch()
    image = catalogue.topics["old"]
    assert [partition[:3] for partition in image.partitions] == [(0, 0, 6), (1, 0, 0)]
    await store.close()
    again = open_store(tmp_path)
    assert open_catalogue(again).topics["old"].topic_id == image.topic_id
    await again.close()


@in_loop
async def test_a_broker_does_not_lead_partitions_that_are_not_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await open_catalogue(store, broker_id=0).create("t", [[0]])
    await store.close()
    again = open_store(tmp_path)
    catalogue = open_catalogue(again, broker_id=1)
    assert catalogue.topics["t"].partitions == [PartitionImage(0, NO_LEADER, 0, [0], [0], 0)]
    await again.close()


class TestWithin:
    """How long an admin request waits for its change."""

    @in_loop
    async def test_a_change_in_time_gives_its_result(self) -> None:
        async def change() -> str:
            await asyncio.sleep(0)
            return "done"

        assert await within(10_000, change()) == "done"

    @in_loop
    async def test_a_timeout_of_0_starts_the_change_and_answers_at_once(self) -> None:
        gate, finished = asyncio.Event(), asyncio.Event()

        async def change() -> None:
            await gate.wait()
            finished.set()

        with refused(ErrorCode.REQUEST_TIMED_OUT):
            await within(0, change())
        gate.set()
        await finished.wait()

    @in_loop
    async def test_a_change_refused_at_once_says_so_even_with_a_timeout_of_0(self) -> None:
        async def change() -> None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)

        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
            await within(0, change())
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
            await within(-1, change())
