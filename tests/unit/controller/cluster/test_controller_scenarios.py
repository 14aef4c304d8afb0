"""Stories of a cluster: brokers come and go, topics are made and deleted, controllers fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_cluster import FakeCluster
from tests.support.metadata import encode_partitions, in_loop
from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.cluster import (
    broker_changes,
    decision_executor,
    kafka_controller,
    partition_state_machine,
    topic_changes,
    topic_deletion,
)
from tidelog.controller.cluster.cluster_reader import ClusterReader
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.metadata_store import SessionState
from tidelog.controller.placement import PlacementBroker, place_new_topic
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.types import TopicPartition, Uuid

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def cluster_of(
    tmp_path: Path, *broker_ids: int, settings: Mapping[str, str] | None = None
) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(tmp_path, settings)
    await cluster.start(*broker_ids)
    try:
        yield cluster
    finally:
        await cluster.close()


# Election


@in_loop
async def test_the_first_broker_is_the_controller_and_the_others_know_it(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 3, 1, 2) as cluster:
        assert cluster.active_id == 3
        assert [c.active_id for c in cluster.controllers.values()] == [3, 3, 3]
        data, stat = await cluster.store.get(znodes.CONTROLLER)
        assert znodes.decode_controller(data) == 3
        assert stat.ephemeral_owner == cluster.sessions[3].session_id
        epoch, _ = await cluster.store.get(znodes.CONTROLLER_EPOCH)
        assert epoch == b"1"


@in_loop
async def test_when_the_controller_dies_another_takes_its_place_with_the_next_epoch(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.kill(1)
        assert cluster.active_id in (2, 3)
        assert cluster.active.epoch == 2
        assert {c.active_id for c in cluster.controllers.values()} == {cluster.active_id}


@in_loop
async def test_a_controller_that_stops_leaves_its_place_at_once(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        await cluster.controllers.pop(1).stop()
        await cluster.settle()
        assert cluster.active_id == 2
        assert await cluster.store.exists("/brokers/ids/1") is not None


@in_loop
async def test_a_controller_whose_session_expires_resigns_and_runs_again(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        await cluster.create_topic("t", [[1, 2]])
        before = cluster.controllers[1]
        await cluster.sessions[1].expire()
        before.on_broker_session(SessionState.EXPIRED)
        await cluster.settle()
        assert not before.is_active
        assert cluster.active_id == 2
        assert (await cluster.state("t")).leader == 2
        cluster.sessions[1].renew()
        await cluster.register(1)
        before.on_broker_session(SessionState.CONNECTED)
        await cluster.settle()
        assert before.active_id == 2
        await cluster.kill(2)
        assert cluster.active is before
        assert before.epoch == 3


@in_loop
async def test_split_brain_of_two_controllers_only_the_later_one_is_heard(tmp_path: Path) -> None:
    """The first has been away so long that its node is gone, and does not know it yet."""
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[3, 1, 2]])
        zombie = cluster.controllers[1]
        cluster.sessions[1].deaf = True
        await cluster.store.delete(znodes.CONTROLLER)
        await cluster.settle()
        successor = next(c for i, c in cluster.controllers.items() if i != 1 and c.is_active)
        assert zombie.is_active
        assert successor.epoch == zombie.epoch + 1
        before = await cluster.state("t")
        answer = await cluster.ask_for_isr("t", [3, 1], to=zombie)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert await cluster.state("t") == before, "a zombie cannot write"
        assert not zombie.is_active, "and has learned that it is one"
        assert (await cluster.alter_isr("t", [3, 1], to=successor)).isr == [3, 1]


@in_loop
async def test_brokers_refuse_what_a_zombie_had_still_to_say(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        cluster.cut_off.add(3)
        await cluster.create_topic("t", [[3, 2]])  # the first controller cannot reach 3
        zombie = cluster.controllers[1]
        cluster.sessions[1].deaf = True
        await cluster.store.delete(znodes.CONTROLLER)
        await cluster.settle()
        cluster.cut_off.clear()
        cluster.clock.advance(ms=100)
        await cluster.settle()
        assert cluster.brokers[3].controller_epoch == 2
        assert cluster.brokers[3].hosted[T0].leader == 3
        assert zombie.is_active
        epochs = [request.controller_epoch for request in cluster.brokers[3].requests]
        assert epochs == sorted(epochs), "the zombie is not heard after its successor"


# A new controller knows what the store says


@in_loop
async def test_a_new_controller_starts_from_what_an_apache_kafka_has_written(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(tmp_path)
    nodes = {
        "/controller_epoch": b"7",
        "/brokers/topics/t": b'{"partitions":{"0":[1,2],"1":[2,1]},'
        b'"topic_id":"F4c0ZoBvTdyL4tBN-PPq6A","adding_replicas":{},"removing_replicas":{},'
        b'"version":3}',
        "/brokers/topics/t/partitions/0/state": b'{"controller_epoch":7,"leader":1,"version":1,'
        b'"leader_epoch":4,"isr":[1,2]}',
        "/brokers/topics/t/partitions/1/state": b'{"controller_epoch":7,"leader":9,"version":1,'
        b'"leader_epoch":6,"isr":[2]}',
        "/brokers/topics/old": b'{"version":1,"partitions":{"0":[1]}}',
        "/config/topics/t": b'{"version":1,"config":{"min.insync.replicas":"2"}}',
    }
    for path, data in nodes.items():
        await cluster.store.create(path, data, make_parents=True)
    await cluster.start(1, 2)
    assert cluster.active.epoch == 8
    assert cluster.brokers[1].hosted[T0].leader == 1
    assert (await cluster.state("t", 1)).leader == 2
    assert (await cluster.state("t", 1)).leader_epoch > 6
    assert (await cluster.assignment("old")).topic_id is not None
    assert (await cluster.state("old")).leader == 1
    assert cluster.brokers[2].metadata.keys() == {T0, ("t", 1), ("old", 0)}
    await cluster.close()


@in_loop
async def test_nodes_that_make_no_sense_do_not_stop_the_controller(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.store.create("/brokers/topics/bad", b"{")
    await cluster.store.create("/brokers/topics/odd", znodes.encode_topic(Uuid.random(), [[1]]))
    await cluster.store.create("/brokers/topics/odd/partitions/0/state", b"?", make_parents=True)
    await cluster.store.create("/isr_change_notification/isr_change_0000000001", b"?")
    await cluster.store.create("/admin/reassign_partitions", b"?")
    await cluster.store.create("/config/topics/t", b"[]")
    await cluster.start(1)
    await cluster.create_topic("t", [[1]])
    assert (await cluster.state("t")).leader == 1
    assert await cluster.store.exists("/admin/reassign_partitions") is None
    await cluster.close()


@in_loop
async def test_a_broker_that_died_and_came_back_between_two_controllers_leads_with_a_new_epoch(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[1, 2]])
        before = await cluster.state("t")
        for broker_id in (2, 3):
            cluster.sessions[broker_id].deaf = True
        await cluster.kill(1)
        await cluster.start(1)  # becomes controller again: the others have not noticed
        after = await cluster.state("t")
        assert after.leader_epoch > before.leader_epoch
        assert after.leader == 2


# Errors that nobody expected


def fails_first(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """A bug that shows once, or until the data that it stumbles over has changed."""
    method = getattr(owner, name)

    def fail_once(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        raise KeyError("a bug")

    monkeypatch.setattr(owner, name, fail_once)


async def die(cluster: FakeCluster) -> None:
    await cluster.kill(2)


async def make_topic(cluster: FakeCluster) -> None:
    await cluster.create_topic("new", [[1, 3]])


async def delete_topic(cluster: FakeCluster) -> None:
    await cluster.delete_topic("t")


async def allow_unclean_elections(cluster: FakeCluster) -> None:
    await cluster.kill(3, 2)
    await cluster.start(3)
    assert (await cluster.state("t")).leader == -1
    await cluster.configure("t", {"unclean.leader.election.enable": "true"})


@pytest.mark.parametrize(
    ("owner", "name", "happens"),
    [
        (broker_changes, "brokers_gone", die),
        (ClusterReader, "brokers", die),
        (topic_changes, "topics_changed", make_topic),
        (topic_deletion, "enqueue", delete_topic),
        (topic_deletion, "replicas_deleted", delete_topic),
        (topic_changes, "settings_changed", allow_unclean_elections),
    ],
)
@in_loop
async def test_an_event_that_fails_unexpectedly_is_not_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    happens: Callable[[FakeCluster], Awaitable[None]],
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        fails_first(monkeypatch, owner, name)
        await happens(cluster)
        await cluster.pass_time(ms=100)
        await cluster.settle()
        if happens is delete_topic:
            assert not await cluster.topic_exists("t")
            return
        topic = "new" if happens is make_topic else "t"
        leader = 1 if happens is make_topic else 3
        assert (await cluster.state(topic)).leader == leader
        assert cluster.brokers[leader].hosted[TopicPartition(topic, 0)].leader == leader
        assert cluster.active.epoch == 1


@in_loop
async def test_a_controller_that_cannot_tell_what_it_has_decided_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: the store has the decision, and only a new controller tells all of it."""
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        fails_first(monkeypatch, decision_executor, "control_requests")
        await cluster.kill(2, settle=False)
        for _ in range(20):
            await cluster.pass_time(ms=100)
        await cluster.settle()
        assert cluster.active.epoch == 2
        assert cluster.active_id == 3
        assert cluster.brokers[3].hosted[T0].leader == 3


@pytest.mark.parametrize("name", ["register_controller", "ActiveController"])
@in_loop
async def test_an_election_that_fails_unexpectedly_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with cluster_of(tmp_path) as cluster:
        fails_first(monkeypatch, kafka_controller, name)
        await cluster.start(1, settle=False)
        for _ in range(20):
            await cluster.pass_time(ms=100)
        assert cluster.active_id == 1


@in_loop
async def test_elections_that_go_on_failing_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def fail(*args: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        raise KeyError("a bug")

    async with cluster_of(tmp_path) as cluster:
        with monkeypatch.context() as broken:
            broken.setattr(kafka_controller, "ActiveController", fail)
            await cluster.start(1, settle=False)
            for _ in range(100):
                await cluster.pass_time(ms=100)
        assert 10 < tries <= 21, "one every 0.5 s"
        for _ in range(10):
            await cluster.pass_time(ms=100)
        assert cluster.active_id == 1


@in_loop
async def test_a_balance_check_that_fails_is_followed_by_the_next_one_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = 0
    elect_preferred = partition_state_machine.elect_preferred_where_imbalanced

    def check(*args: Any) -> None:
        nonlocal checks
        checks += 1
        if checks == 1:
            raise KeyError("a bug")
        elect_preferred(*args)

    monkeypatch.setattr(partition_state_machine, "elect_preferred_where_imbalanced", check)
    settings = {
        "auto.leader.rebalance.enable": "true",
        "leader.imbalance.check.interval.seconds": "10",
    }
    async with cluster_of(tmp_path, 1, settings=settings) as cluster:
        for _ in range(40):
            await cluster.pass_time(ms=1000)
        assert checks == 4, "after 5, 15, 25 and 35 s"


@in_loop
async def test_the_controller_is_looked_for_until_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of(tmp_path, 1) as cluster:
        fails_first(monkeypatch, znodes, "decode_controller")
        await cluster.start(2, settle=False)
        for _ in range(5):
            await cluster.pass_time(ms=100)
        assert cluster.controllers[2].active_id == 1


# Brokers


@in_loop
async def test_the_next_live_replica_in_sync_leads_when_the_leader_dies(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3, 1]])
        await cluster.kill(2)
        state = await cluster.state("t")
        assert (state.leader, state.isr, state.leader_epoch) == (3, [3, 1], 1)
        for broker_id in (1, 3):
            told = cluster.brokers[broker_id].hosted[T0]
            assert (told.leader, told.leader_epoch) == (3, 1)
            assert told.partition_epoch == await cluster.version("t")
            assert cluster.brokers[broker_id].metadata[T0].leader == 3
            assert cluster.brokers[broker_id].metadata[T0].offline_replicas == [2]
            assert cluster.brokers[broker_id].live_brokers == {1, 3}


@in_loop
async def test_a_dead_follower_leaves_the_in_sync_set(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[1, 2, 3]])
        await cluster.kill(3)
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (1, [1, 2])
        assert cluster.brokers[1].hosted[T0].isr == [1, 2]


@in_loop
async def test_the_last_replica_in_sync_stays_so_and_leads_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.kill(3)
        await cluster.kill(2)
        assert (await cluster.state("t")) == znodes.LeaderIsrAndControllerEpoch(-1, 2, 1, [2])
        assert cluster.brokers[1].metadata[T0].leader == -1
        await cluster.start(3)
        assert (await cluster.state("t")).leader == -1, "3 was not in sync"
        await cluster.start(2)
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (2, [2])


@in_loop
async def test_a_broker_that_joins_is_told_everything(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        await cluster.create_topic("t", [[1, 2]])
        await cluster.create_topic("u", [[2, 3]])
        await cluster.start(3)
        newcomer = cluster.brokers[3]
        assert newcomer.live_brokers == {1, 2, 3}
        assert newcomer.metadata.keys() == {T0, ("u", 0)}
        assert newcomer.hosted.keys() == {("u", 0)}
        kinds = [type(request) for request in newcomer.requests]
        assert kinds.index(UpdateMetadataRequest) < kinds.index(LeaderAndIsrRequest)
        assert {r.broker_epoch for r in newcomer.requests} == {newcomer.epoch}
        assert cluster.brokers[1].live_brokers == {1, 2, 3}


@in_loop
async def test_a_replaced_broker_with_the_old_id_takes_over_its_partitions(
    tmp_path: Path,
) -> None:
    """M3: another machine under the id of one that is lost."""
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[3, 1], [1, 3]])
        await cluster.kill(3)
        await cluster.start(3)
        replacement = cluster.brokers[3]
        assert replacement.hosted.keys() == {T0, ("t", 1)}
        assert {state.leader for state in replacement.hosted.values()} == {1}
        await cluster.alter_isr("t", [1, 3])
        assert (await cluster.state("t")).isr == [1, 3]


@in_loop
async def test_a_broker_that_comes_back_before_its_death_is_seen_is_a_new_life(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        await cluster.create_topic("t", [[2, 1]])
        before = cluster.brokers[2].epoch
        session = cluster.sessions[2]
        await session.expire()
        session.renew()
        await cluster.register(2)
        cluster.controllers[2].on_broker_session(SessionState.EXPIRED)
        cluster.controllers[2].on_broker_session(SessionState.CONNECTED)
        await cluster.settle()
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (1, [1])
        assert cluster.brokers[2].epoch > before
        assert cluster.brokers[2].refused == 0
        assert cluster.brokers[2].hosted[T0].leader == 1


@in_loop
async def test_a_broker_that_cannot_be_reached_is_told_again_until_it_answers(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        cluster.cut_off.add(2)
        await cluster.create_topic("t", [[1, 2]])
        await cluster.create_topic("u", [[2, 1]])
        for _ in range(5):
            cluster.clock.advance(ms=100)
            await cluster.settle()
        assert not cluster.brokers[2].hosted
        cluster.cut_off.clear()
        cluster.clock.advance(ms=100)
        await cluster.settle()
        assert cluster.brokers[2].hosted.keys() == {T0, ("u", 0)}


@in_loop
async def test_what_a_dead_broker_was_to_be_told_is_dropped(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        cluster.cut_off.add(2)
        await cluster.create_topic("t", [[1, 2]])
        await cluster.kill(2)
        calls = cluster.calls
        cluster.clock.advance(ms=1000)
        await cluster.settle()
        assert cluster.calls == calls
        assert cluster.peers[1].known.keys() == {1}


@in_loop
async def test_brokers_learn_of_a_broker_that_moves(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9999, "PLAINTEXT")
        moved = znodes.encode_broker([endpoint], timestamp_ms=0)
        await cluster.store.set("/brokers/ids/2", moved)
        await cluster.settle()
        last = cluster.brokers[1].of_kind(UpdateMetadataRequest)[-1]
        ports = {b.id: b.endpoints[0].port for b in last.live_brokers}
        assert ports == {1: 9001, 2: 9999}
        assert cluster.peers[1].known[2].port == 9999


# Unclean elections


@in_loop
async def test_without_unclean_elections_a_partition_waits_for_a_replica_in_sync(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.alter_isr("t", [2])
        await cluster.kill(2)
        assert (await cluster.state("t")).leader == -1


@in_loop
async def test_with_unclean_elections_any_live_replica_leads_and_has_to_recover(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]], {"unclean.leader.election.enable": "true"})
        await cluster.alter_isr("t", [2])
        await cluster.kill(2)
        state = await cluster.state("t")
        assert (state.leader, state.isr, state.leader_recovery_state) == (3, [3], 1)
        assert cluster.brokers[3].hosted[T0].leader_recovery_state == 1
        answer = await cluster.alter_isr("t", [3], recovery=0)
        assert answer.leader_recovery_state == 0
        assert (await cluster.state("t")).leader_recovery_state == 0


@pytest.mark.parametrize("entity", ["topics/t", "brokers/<default>", "brokers/1"])
@in_loop
async def test_unclean_elections_can_be_enabled_while_a_partition_waits(
    tmp_path: Path, entity: str
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.alter_isr("t", [2])
        await cluster.kill(2)
        kind, _, name = entity.partition("/")
        overrides = znodes.encode_config({"unclean.leader.election.enable": "true"})
        if kind == "topics":
            await cluster.store.set(f"/config/{entity}", overrides)
        else:
            await cluster.store.create(f"/config/{entity}", overrides)
        await cluster.notify_config_change(kind, name)
        assert (await cluster.state("t")).leader == 3


@in_loop
async def test_the_brokers_default_for_unclean_elections_holds_where_the_topic_says_nothing(
    tmp_path: Path,
) -> None:
    settings = {"unclean.leader.election.enable": "true"}
    async with cluster_of(tmp_path, 1, 2, 3, settings=settings) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.create_topic("u", [[2, 3]], {"unclean.leader.election.enable": "false"})
        for topic in ("t", "u"):
            await cluster.alter_isr(topic, [2])
        await cluster.kill(2)
        assert (await cluster.state("t")).leader == 3
        assert (await cluster.state("u")).leader == -1


@in_loop
async def test_a_topic_made_again_does_not_have_the_settings_of_the_one_before(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]], {"unclean.leader.election.enable": "true"})
        await cluster.delete_topic("t")
        await cluster.configure_brokers("<default>", {"min.insync.replicas": "1"})
        await cluster.create_topic("t", [[2, 3]])
        await cluster.alter_isr("t", [2])
        await cluster.kill(2)
        assert (await cluster.state("t")).leader == -1, "an unclean election would lose records"


# KIP-966


@in_loop
async def test_an_eligible_replica_leads_when_nobody_in_sync_is_left(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, strict_min_isr=True)
    await cluster.create_topic("t", [[2, 3]], {"min.insync.replicas": "2"})
    await cluster.alter_isr("t", [2])
    assert (await cluster.state("t")).elr == [3]
    await cluster.kill(2)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.elr) == (3, [3], [2])
    assert state.leader_recovery_state == 0
    await cluster.start(2, strict_min_isr=True)
    await cluster.alter_isr("t", [3, 2])
    assert (await cluster.state("t")).elr == ()
    await cluster.close()


@in_loop
async def test_the_last_replica_standing_does_not_lead_after_an_unclean_restart(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, strict_min_isr=True)
    await cluster.create_topic("t", [[2, 3]], {"min.insync.replicas": "2"})
    await cluster.kill(3)
    await cluster.kill(2)
    assert (await cluster.state("t")).isr == [2]
    assert (await cluster.state("t")).elr == [3]
    await cluster.start(2, strict_min_isr=True, clean_shutdown=False)
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (-1, [3]), "2 may have lost what 3 surely has"
    assert state.last_known_elr == [2]
    await cluster.start(3, strict_min_isr=True)
    assert (await cluster.state("t")).leader == 3
    await cluster.close()


@in_loop
async def test_when_no_replica_ended_cleanly_the_one_that_led_last_leads(tmp_path: Path) -> None:
    """3 may have an empty disk: that it was eligible once is no reason to prefer it to 2."""
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, strict_min_isr=True)
    await cluster.create_topic("t", [[2, 3]], {"min.insync.replicas": "2"})
    await cluster.kill(3)
    await cluster.kill(2)
    await cluster.start(2, strict_min_isr=True, clean_shutdown=False)
    assert (await cluster.state("t")).leader == -1
    await cluster.start(3, strict_min_isr=True, clean_shutdown=False)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (2, [2], (), ())
    await cluster.close()


@in_loop
async def test_when_all_replicas_go_at_once_the_leader_stays_in_sync(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, 4, strict_min_isr=True)
    await cluster.create_topic("t", [[3, 2, 4]], {"min.insync.replicas": "2"})
    assert cluster.active._active is not None
    draft = DecisionDraft(cluster.active._active.context)
    broker_changes.brokers_gone(draft, [2, 3, 4])
    state = draft.state.leadership[T0]
    assert (state.leader, state.isr, state.elr) == (-1, (3,), (4,))
    await cluster.close()


@in_loop
async def test_an_unclean_election_prefers_who_led_last_and_is_made_only_where_allowed(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, 4, strict_min_isr=True)
    await cluster.create_topic("t", [[3, 2, 4]], {"min.insync.replicas": "2"})
    await cluster.kill(3)
    await cluster.start(3, strict_min_isr=True)
    await cluster.kill(4)
    await cluster.kill(2)
    await cluster.start(2, strict_min_isr=True, clean_shutdown=False)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, [4], (), [2])
    await cluster.configure(
        "t", {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
    )
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (2, [2]), "3 has lacked records for longer"
    assert (state.elr, state.last_known_elr, state.leader_recovery_state) == ((), (), 1)
    await cluster.close()


@in_loop
async def test_eligible_replicas_outlive_the_controller(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, strict_min_isr=True)
    await cluster.create_topic("t", [[2, 3]], {"min.insync.replicas": "2"})
    await cluster.alter_isr("t", [2])
    await cluster.kill(1, 2)
    assert cluster.active_id == 3
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.elr) == (3, [3], [2])
    await cluster.close()


@in_loop
async def test_lowering_min_insync_replicas_ends_eligibility(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, strict_min_isr=True)
    await cluster.create_topic("t", [[2, 3]], {"min.insync.replicas": "2"})
    await cluster.alter_isr("t", [2])
    assert (await cluster.state("t")).elr == [3]
    await cluster.configure("t", {"min.insync.replicas": "1"})
    assert (await cluster.state("t")).elr == ()
    await cluster.close()


@pytest.mark.parametrize(("leaders", "controllers", "elr"), [(1, 2, ()), (2, 1, [3])])
@in_loop
async def test_eligibility_goes_by_the_min_insync_replicas_of_the_leader(
    tmp_path: Path, leaders: int, controllers: int, elr: Sequence[int]
) -> None:
    """In the midst of a rolling change a leader may commit alone where the controller would not."""
    cluster = FakeCluster(tmp_path, {"min.insync.replicas": str(controllers)})
    await cluster.start(1, strict_min_isr=True, min_insync_replicas=controllers)
    await cluster.start(2, 3, strict_min_isr=True, min_insync_replicas=leaders)
    await cluster.create_topic("t", [[2, 3]])
    await cluster.alter_isr("t", [2])
    assert (await cluster.state("t")).elr == elr
    await cluster.kill(2)
    assert (await cluster.state("t")).leader == (3 if elr else -1)
    await cluster.close()


@pytest.mark.parametrize(("least", "elr"), [(1, ()), (2, (4,))])
@in_loop
async def test_a_leader_that_has_just_gone_still_says_what_is_enough(
    tmp_path: Path, least: int, elr: tuple[int, ...]
) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, 4, strict_min_isr=True, min_insync_replicas=least)
    await cluster.create_topic("t", [[3, 2, 4]])
    assert cluster.active._active is not None
    draft = DecisionDraft(cluster.active._active.context)
    broker_changes.brokers_gone(draft, [2, 3, 4])
    state = draft.state.leadership[T0]
    assert (state.leader, state.isr, state.elr) == (-1, (3,), elr)
    await cluster.close()


@in_loop
async def test_who_is_eligible_by_a_static_minimum_stays_so_under_the_next_controller(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, strict_min_isr=True, min_insync_replicas=2)
    await cluster.create_topic("t", [[2, 3]])
    await cluster.alter_isr("t", [2])
    await cluster.kill(1, 2)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.elr) == (3, [3], [2])
    await cluster.close()


@in_loop
async def test_a_leader_whose_minimum_nobody_knows_has_no_eligible_replicas(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster(tmp_path, {"min.insync.replicas": "2"})
    await cluster.start(1, 2, 3, strict_min_isr=True)
    await cluster.create_topic("t", [[2, 3]])
    await cluster.alter_isr("t", [2])
    assert (await cluster.state("t")).elr == ()
    await cluster.configure_brokers(znodes.DEFAULT_ENTITY, {"min.insync.replicas": "2"})
    await cluster.alter_isr("t", [2, 3])
    await cluster.alter_isr("t", [2])
    assert (await cluster.state("t")).elr == [3]
    await cluster.close()


@in_loop
async def test_lowering_the_minimum_of_the_leaders_broker_ends_eligibility(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3, strict_min_isr=True, min_insync_replicas=2)
    await cluster.create_topic("t", [[2, 3]])
    await cluster.alter_isr("t", [2])
    await cluster.configure_brokers("3", {"min.insync.replicas": "1"})
    assert (await cluster.state("t")).elr == [3], "2 leads, not 3"
    await cluster.configure_brokers("2", {"min.insync.replicas": "1"})
    assert (await cluster.state("t")).elr == ()
    await cluster.close()


@in_loop
async def test_nobody_is_eligible_under_leaders_that_do_not_announce_strict_min_isr(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]], {"min.insync.replicas": "2"})
        await cluster.alter_isr("t", [2])
        assert (await cluster.state("t")).elr == ()
        assert b"elr" not in (await cluster.store.get(znodes.state_path("t", 0)))[0]


# Controlled shutdown


@in_loop
async def test_a_broker_that_announces_its_stop_gives_its_leaderships_away(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3], [3, 2], [2]])
        response = await cluster.shut_down(2)
        assert response.error_code == ErrorCode.NONE
        assert response.remaining_partitions == []
        assert ((await cluster.state("t", 0)).leader, (await cluster.state("t", 0)).isr) == (3, [3])
        assert (await cluster.state("t", 1)).isr == [3]
        assert (await cluster.state("t", 2)).leader == 2, "nobody else could serve it"
        stopped = cluster.brokers[2].of_kind(StopReplicaRequest)[-1].topic_states[0]
        assert [row.partition_index for row in stopped.partition_states] == [1]
        assert cluster.brokers[2].hosted[T0].leader == 3
        await cluster.kill(2)
        assert (await cluster.state("t", 2)).leader == -1
        await cluster.start(2)
        assert (await cluster.state("t", 2)).leader == 2


@in_loop
async def test_what_nobody_else_has_in_sync_stays_with_the_broker_that_stops(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.alter_isr("t", [2])
        response = await cluster.shut_down(2)
        left = [(row.topic_name, row.partition_index) for row in response.remaining_partitions]
        assert left == [T0]
        answer = await cluster.ask_for_isr("t", [2, 3])
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA


# Preferred leaders


@in_loop
async def test_the_preferred_leader_returns_when_leadership_is_balanced(tmp_path: Path) -> None:
    settings = {"auto.leader.rebalance.enable": "true"}
    async with cluster_of(tmp_path, 1, 2, 3, settings=settings) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.alter_isr("t", [3, 2])
        assert (await cluster.state("t")).leader == 3
        cluster.clock.advance(ms=5_000)
        await cluster.settle()
        assert (await cluster.state("t")).leader == 2
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.alter_isr("t", [3, 2])
        cluster.clock.advance(ms=299_000)
        await cluster.settle()
        assert (await cluster.state("t")).leader == 3
        cluster.clock.advance(ms=1_000)
        await cluster.settle()
        assert (await cluster.state("t")).leader == 2


@in_loop
async def test_leadership_is_left_alone_while_the_imbalance_is_small(tmp_path: Path) -> None:
    settings = {
        "auto.leader.rebalance.enable": "true",
        "leader.imbalance.per.broker.percentage": "50",
    }
    async with cluster_of(tmp_path, 1, 2, 3, settings=settings) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.create_topic("u", [[2, 3]])
        await cluster.alter_isr("t", [3, 2])
        cluster.clock.advance(ms=5_000)
        await cluster.settle()
        assert (await cluster.state("t")).leader == 3, "1 of 2 is not more than half"


@in_loop
async def test_the_election_node_of_old_tools_elects_preferred_leaders_and_goes(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        for _ in range(2):
            await cluster.kill(2)
            await cluster.start(2)
            await cluster.alter_isr("t", [3, 2])
            wanted = encode_partitions([T0, TopicPartition("gone", 0)])
            await cluster.store.create("/admin/preferred_replica_election", wanted)
            await cluster.settle()
            assert (await cluster.state("t")).leader == 2
            assert await cluster.store.exists("/admin/preferred_replica_election") is None


# Topics


@in_loop
async def test_a_new_topic_gets_leaders_and_all_its_live_replicas_in_sync(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        topic_id = await cluster.create_topic("t", [[1, 2], [3, 2], [3]])
        assert await cluster.state("t", 0) == znodes.LeaderIsrAndControllerEpoch(1, 0, 1, [1, 2])
        assert await cluster.state("t", 1) == znodes.LeaderIsrAndControllerEpoch(2, 0, 1, [2])
        assert await cluster.store.exists(znodes.state_path("t", 2)) is None
        request = cluster.brokers[2].of_kind(LeaderAndIsrRequest)[-1]
        assert request.topic_states[0].topic_id == topic_id
        assert all(row.is_new for row in request.topic_states[0].partition_states)
        leaders = {row.broker_id: row.port for row in request.live_leaders}
        assert leaders == {1: 9001, 2: 9002}
        await cluster.start(3)
        assert (await cluster.state("t", 2)).leader == 3


@in_loop
async def test_added_partitions_get_leaders(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        topic_id = await cluster.create_topic("t", [[1, 2]])
        await cluster.store.set("/brokers/topics/t", znodes.encode_topic(topic_id, [[1, 2], [2]]))
        await cluster.settle()
        assert (await cluster.state("t", 1)).leader == 2
        assert (await cluster.version("t", 0)) == 0, "the others are left alone"


@in_loop
async def test_a_topic_is_deleted_from_all_its_brokers(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        await cluster.create_topic("t", [[1, 2], [2, 1]])
        await cluster.create_topic("kept", [[1, 2]])
        await cluster.delete_topic("t")
        assert not await cluster.topic_exists("t")
        assert await cluster.store.exists("/config/topics/t") is None
        assert await cluster.store.exists("/admin/delete_topics/t") is None
        for broker in cluster.brokers.values():
            assert sorted(broker.deleted) == [T0, ("t", 1)]
            assert broker.hosted.keys() == broker.metadata.keys() == {("kept", 0)}
            epochs = {
                row.leader_epoch
                for row in broker.of_kind(StopReplicaRequest)[-1].topic_states[0].partition_states
            }
            assert epochs == {-2}
        await cluster.create_topic("t", [[2]])
        assert (await cluster.state("t")).leader == 2


@in_loop
async def test_deletion_waits_for_a_broker_that_is_not_there(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.kill(3)
        await cluster.delete_topic("t")
        assert await cluster.topic_exists("t")
        await cluster.start(3)
        assert not await cluster.topic_exists("t")
        assert cluster.brokers[3].deleted == [T0]


@in_loop
async def test_a_broker_that_dies_while_it_deletes_is_asked_again(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        await cluster.create_topic("t", [[1, 2]])
        cluster.cut_off.add(2)
        await cluster.delete_topic("t")
        assert cluster.brokers[1].deleted == [T0]
        await cluster.kill(2)
        cluster.cut_off.clear()
        assert await cluster.topic_exists("t")
        await cluster.start(2)
        assert not await cluster.topic_exists("t")
        assert cluster.brokers[1].deleted == [T0], "1 had done it"


@in_loop
async def test_a_broker_that_fails_to_delete_is_asked_again_when_it_comes_back(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        await cluster.create_topic("t", [[1, 2]])
        cluster.brokers[2].deletion_fails = True
        await cluster.delete_topic("t")
        assert await cluster.topic_exists("t")
        await cluster.kill(2)
        await cluster.start(2)
        assert not await cluster.topic_exists("t")


@in_loop
async def test_a_new_controller_goes_on_with_deletions(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        cluster.cut_off |= {2, 3}
        await cluster.delete_topic("t")
        cluster.cut_off.clear()
        await cluster.kill(1)
        assert not await cluster.topic_exists("t")


@in_loop
async def test_deletion_can_be_disabled(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, settings={"delete.topic.enable": "false"}) as cluster:
        await cluster.create_topic("t", [[1]])
        await cluster.delete_topic("t")
        assert await cluster.topic_exists("t")
        assert await cluster.store.exists("/admin/delete_topics/t") is None


@in_loop
async def test_the_wish_to_delete_what_is_not_there_is_dropped(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1) as cluster:
        await cluster.delete_topic("never")
        assert await cluster.store.exists("/admin/delete_topics/never") is None


@in_loop
async def test_partitions_added_to_a_topic_on_its_way_out_are_taken_back(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2) as cluster:
        topic_id = await cluster.create_topic("t", [[1, 2]])
        await cluster.kill(2)
        await cluster.delete_topic("t")
        await cluster.store.set("/brokers/topics/t", znodes.encode_topic(topic_id, [[1, 2], [1]]))
        await cluster.settle()
        assert (await cluster.assignment("t")).partitions == {0: [1, 2]}
        await cluster.start(2)
        assert not await cluster.topic_exists("t")


# In-sync sets of old brokers, log directories, racks


@in_loop
async def test_in_sync_sets_written_by_old_brokers_are_noticed(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.store.set(znodes.state_path("t", 0), znodes.encode_state(2, 0, 1, [2]))
        await cluster.store.create(
            "/isr_change_notification/isr_change_", encode_partitions([T0]), sequence=True
        )
        await cluster.settle()
        assert cluster.brokers[1].metadata[T0].isr == [2]
        assert await cluster.store.children("/isr_change_notification") == []
        await cluster.kill(2)
        assert (await cluster.state("t")).leader == -1


@in_loop
async def test_an_in_sync_set_written_unnoticed_is_found_when_it_matters(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[1, 2, 3]])
        path = znodes.state_path("t", 0)
        await cluster.store.set(path, znodes.encode_state(1, 0, 1, [1, 3]))
        await cluster.kill(3)
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (1, [1])


@in_loop
async def test_a_replica_in_a_failed_log_directory_is_offline_until_its_broker_restarts(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, 1, 2, 3) as cluster:
        await cluster.create_topic("t", [[2, 3]])
        await cluster.create_topic("u", [[2, 3]])
        cluster.brokers[2].lost_dirs.add(T0)
        await cluster.store.create(
            "/log_dir_event_notification/log_dir_event_",
            znodes.encode_log_dir_event(2),
            sequence=True,
        )
        await cluster.settle()
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (3, [3])
        assert (await cluster.state("u")).leader == 2
        assert cluster.brokers[1].metadata[T0].offline_replicas == [2]
        assert await cluster.store.children("/log_dir_event_notification") == []
        await cluster.kill(2)
        await cluster.start(2)
        assert cluster.brokers[1].metadata[T0].offline_replicas == []


@in_loop
async def test_rack_loss_leaves_every_partition_with_a_leader(tmp_path: Path) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    cluster = FakeCluster(tmp_path)
    await cluster.start(*racks, racks=racks)
    brokers = [PlacementBroker(broker_id, rack) for broker_id, rack in racks.items()]
    assignment = place_new_topic(brokers, 12, 3, lambda bound: 0)
    for replicas in assignment:
        assert {racks[broker_id] for broker_id in replicas} == {"a", "b", "c"}
    await cluster.create_topic("t", assignment)
    await cluster.kill(1, 2)
    for partition in range(12):
        state = await cluster.state("t", partition)
        assert racks[state.leader] != "a"
        assert len(state.isr) == 2
    await cluster.close()
