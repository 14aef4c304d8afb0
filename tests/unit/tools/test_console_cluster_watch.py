"""What live pages look at: rates by two looks, what is told, what is left out, names as text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from tests.support.console_client import ConsoleClient
from tidelog.client.admin.asking import Result
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.brokers import ClusterDescription, LogDirDescription, ReplicaOnDisk
from tidelog.client.admin.groups import GroupListing
from tidelog.client.admin.offsets import ListedOffset
from tidelog.client.admin.topics import PartitionDescription, TopicDescription
from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
from tidelog.client.errors import ClientError, NotAuthorized
from tidelog.client.network.metadata import Node
from tidelog.errors import ErrorCode
from tidelog.tools.console import cluster_watch
from tidelog.tools.console.clients import Clients
from tidelog.tools.console.cluster_watch import ClusterWatch, Look, health, sizes_by_topic
from tidelog.tools.console.pages import overview
from tidelog.types import ZERO_UUID, TopicPartition

HOSTILE = '"><script>alert(1)</script>'


def topic(name: str, *partitions: PartitionDescription) -> TopicDescription:
    return TopicDescription(name, ZERO_UUID, name.startswith("__"), partitions)


def partition(
    index: int, leader: int = 1, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] = (1, 2)
) -> PartitionDescription:
    return PartitionDescription(index, leader, 0, replicas, isr)


class ScriptedAdmin:
    """What it answers is set by the test."""

    def __init__(self) -> None:
        self.topics = {"orders": topic("orders", partition(0), partition(1))}
        self.ends = {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 50}
        self.groups: dict[str, dict[TopicPartition, int] | ClientError] | ClientError = {}
        self.asked: list[TopicPartition] = []

    async def describe_cluster(self, **_: object) -> ClusterDescription:
        node = Node(1, "h", 9092, HOSTILE)
        return ClusterDescription(HOSTILE, node, (node,))

    async def describe_all_topics(self, **_: object) -> dict[str, TopicDescription]:
        return self.topics

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Result[ListedOffset]]:
        self.asked = list(wanted)
        return {
            place: Result(ListedOffset(self.ends[place]))
            if place in self.ends
            else Result(error=NotAuthorized("no", ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            for place in wanted
        }

    async def list_groups(self) -> list[GroupListing]:
        if isinstance(self.groups, ClientError):
            raise self.groups
        return [GroupListing(name, "consumer", "Stable", "classic") for name in self.groups]

    async def list_group_offsets(self, name: str) -> dict[TopicPartition, OffsetAndMetadata]:
        assert not isinstance(self.groups, ClientError)
        found = self.groups[name]
        if isinstance(found, ClientError):
            raise found
        return {place: OffsetAndMetadata(offset) for place, offset in found.items()}

    async def describe_log_dirs(self) -> dict[int, Result[dict[str, LogDirDescription]]]:
        replica = ReplicaOnDisk(1_000, 0, False)
        folder = LogDirDescription(None, {TopicPartition("orders", 0): replica}, 100, 25, False)
        refused = NotAuthorized("no", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return {1: Result({HOSTILE: folder}), 2: Result(error=refused)}

    async def close(self) -> None:
        pass


class Looking:
    """A watch on a scripted cluster, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.admin = ScriptedAdmin()
        self.clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, lambda: self.now_s)
        self.clients.admin = self.admin  # type: ignore[assignment]
        self.watch = ClusterWatch(self.clients, (), lambda: int(self.now_s * 1_000))

    def after(self, seconds: float) -> Look:
        self.now_s += seconds
        return asyncio.run(self.watch.look())


@pytest.fixture
def looking() -> Looking:
    return Looking()


def test_a_rate_is_the_difference_of_two_looks(looking: Looking) -> None:
    looking.after(0)
    assert looking.watch.samples[-1].records_per_s is None, "one look has no rate"
    looking.admin.ends[TopicPartition("orders", 0)] = 140
    looking.admin.ends[TopicPartition("orders", 1)] = 51
    looking.after(10)
    assert looking.watch.samples[-1].records_per_s == 4.1
    assert looking.watch.rates.by_topic == {"orders": 4.1}


def test_a_topic_that_was_made_anew_has_no_rate_below_zero(looking: Looking) -> None:
    looking.after(0)
    looking.admin.ends[TopicPartition("orders", 0)] = 0
    looking.after(10)
    assert looking.watch.samples[-1].records_per_s == 0


def test_a_new_partition_counts_from_its_second_look(looking: Looking) -> None:
    looking.after(0)
    looking.admin.topics = {"new": topic("new", partition(0)), **looking.admin.topics}
    looking.admin.ends[TopicPartition("new", 0)] = 1_000_000
    looking.after(10)
    assert looking.watch.samples[-1].records_per_s == 0


def test_a_rate_over_a_time_that_nobody_watched_is_not_told(looking: Looking) -> None:
    looking.after(0)
    looking.after(3_600)
    assert looking.watch.samples[-1].records_per_s is None
    looking.after(2)
    gap = overview.plots_of(looking.watch)[1].lines[0]
    assert gap.path.count("M") == 2, "the line has a gap there"


def test_topics_that_are_gone_leave_no_history(looking: Looking) -> None:
    looking.after(0)
    looking.admin.ends[TopicPartition("orders", 0)] += 1
    looking.after(1)
    assert "orders" in looking.watch.rates.history
    looking.admin.topics = {}
    looking.after(10)
    assert not looking.watch.rates.history


def test_what_is_kept_is_bounded(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "TOPICS_WITH_RATES_MAX", 1)
    monkeypatch.setattr(cluster_watch, "PARTITIONS_MAX", 2)
    looking.admin.topics = {
        name: topic(name, partition(0)) for name in ("orders", "others", "third")
    }
    looking.admin.ends[TopicPartition("others", 0)] = 0
    for _ in range(cluster_watch.SAMPLES_MAX + 5):
        looking.admin.ends[TopicPartition("orders", 0)] += 1
        looking.admin.ends[TopicPartition("others", 0)] += 1
        found = looking.after(2)
    assert found.partitions_left_out == 1
    assert len(looking.watch.samples) == cluster_watch.SAMPLES_MAX
    assert len(looking.watch.rates.history) == 1
    (kept,) = looking.watch.rates.history.values()
    assert len(kept) == cluster_watch.TOPIC_SAMPLES_MAX


def test_partitions_without_a_leader_are_not_asked_about(looking: Looking) -> None:
    looking.admin.topics = {"orders": topic("orders", partition(0), partition(1, leader=-1))}
    looking.after(0)
    assert looking.admin.asked == [TopicPartition("orders", 0)]


def test_lag_is_of_the_groups_that_the_user_may_see(looking: Looking) -> None:
    place = TopicPartition("orders", 0)
    refused = NotAuthorized("no", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    looking.admin.groups = {"a": {place: 90}, "ahead": {place: 200}, "hidden": refused}
    found = looking.after(0)
    assert found.lags == {"a": 10, "ahead": 0}
    assert looking.watch.samples[-1].lag == 10


def test_a_cluster_that_does_not_list_groups_has_no_lag(looking: Looking) -> None:
    looking.admin.groups = NotAuthorized("no", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert looking.after(0).group_count is None
    assert looking.watch.samples[-1].lag is None


def test_health_counts_leaders_and_replicas_in_sync() -> None:
    topics: Iterable[TopicDescription] = (
        topic("a", partition(0), partition(1, isr=(1,))),
        topic("b", partition(0, leader=-1, isr=())),
    )
    found = health({each.name: each for each in topics})
    assert (found.partitions, found.leaderless, found.under_replicated) == (3, 1, 2)
    assert found.leads[1] == 2
    assert found.holds == {1: 3, 2: 3}


def test_a_broker_that_does_not_tell_of_its_disks_hides_no_other(looking: Looking) -> None:
    disks = asyncio.run(looking.watch.disks())
    assert sizes_by_topic(disks) == {"orders": 1_000}
    told, untold = overview.disks_of(disks)
    assert (told.held_bytes, told.used_share) == (1_000, 0.75)
    assert "no" in untold.trouble


def test_looks_are_taken_while_somebody_watches(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "LOOK_S", 0.0)
    monkeypatch.setattr(cluster_watch, "LOAD_MAX", 1.0)
    asked = 0

    async def refuse(**_: object) -> dict[str, TopicDescription]:
        nonlocal asked
        asked += 1
        looking.now_s += 2  # a refusal is not kept for longer
        raise ClientError("the cluster hides")

    async def story() -> None:
        async with (
            aclosing(looking.watch.looks()) as looks,
            aclosing(looking.watch.looks()) as others,
        ):
            assert await anext(looks) == ""
            monkeypatch.setattr(looking.admin, "describe_all_topics", refuse)
            looking.now_s += 2
            while not (trouble := await anext(looks)):
                pass
            assert trouble == "the cluster hides"
            await looks.aclose()
            before = asked
            while asked < before + 2:
                await anext(others)
        before = asked
        for _ in range(20):
            await asyncio.sleep(0)
        assert asked == before, "nobody watches"

    asyncio.run(story())


def test_names_that_a_cluster_tells_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of topics, whose names no sound broker would allow."""
    admin = ScriptedAdmin()
    admin.topics = {HOSTILE: topic(HOSTILE, partition(0, leader=-1))}
    for name in ("describe_cluster", "describe_all_topics", "describe_log_dirs"):
        call: Any = getattr(admin, name)

        def answer(self: AsyncAdmin, call: Any = call, **keywords: object) -> Any:
            return call(**keywords)

        monkeypatch.setattr(AsyncAdmin, name, answer)
    with ConsoleClient() as console:
        for path in ("/", "/topics", "/brokers"):
            page = console.get(path)
            assert page.status == 200
            assert "<script>alert" not in page.text
            assert "alert(1)" in page.words
