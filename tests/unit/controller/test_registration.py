from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import contents, in_loop, open_store
from tidelog.config.listeners import Endpoint
from tidelog.controller import znodes
from tidelog.controller.registration import (
    InconsistentClusterId,
    find_cluster,
    generate_broker_id,
    join_cluster,
    register_broker,
)


@in_loop
async def test_the_first_broker_makes_the_cluster_and_becomes_controller(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    membership = join_cluster(store, 4, FakeClock())
    assert len(membership.cluster_id) == 22
    assert (membership.controller_id, membership.controller_epoch) == (4, 1)
    nodes = contents(store)
    assert znodes.decode_cluster_id(nodes["/cluster/id"]) == membership.cluster_id
    assert znodes.decode_controller(nodes["/controller"]) == 4
    assert nodes["/controller_epoch"] == b"1"
    assert {"/brokers/ids", "/brokers/topics", "/config/topics", "/admin/delete_topics"} <= set(
        nodes
    )
    await store.close()


@in_loop
async def test_a_restart_keeps_the_cluster_id_and_raises_the_controller_epoch(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    before = join_cluster(store, 0, FakeClock())
    await store.close()
    again = open_store(tmp_path)
    after = join_cluster(again, 0, FakeClock(), known_cluster_id=before.cluster_id)
    assert after == before._replace(controller_epoch=2)
    await again.close()


@in_loop
async def test_the_second_broker_leaves_the_controller_alone(tmp_path: Path) -> None:
    one = open_store(tmp_path)
    first = join_cluster(one, 1, FakeClock())
    two = one.new_session()
    assert join_cluster(two, 2, FakeClock()) == first


@in_loop
async def test_an_empty_store_takes_over_the_cluster_id_of_the_data(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    membership = join_cluster(store, 0, FakeClock(), known_cluster_id="R1CwuFLDT_Ws1G6P3jI_1g")
    assert membership.cluster_id == "R1CwuFLDT_Ws1G6P3jI_1g"
    await store.close()


@in_loop
async def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    join_cluster(store, 0, FakeClock())
    with pytest.raises(InconsistentClusterId):
        join_cluster(store, 0, FakeClock(), known_cluster_id="R1CwuFLDT_Ws1G6P3jI_1g")
    await store.close()


@in_loop
async def test_a_registration_is_ephemeral_and_its_epoch_grows_with_each_start(
    tmp_path: Path,
) -> None:
    epochs = []
    for _ in range(2):
        store = open_store(tmp_path)
        join_cluster(store, 0, FakeClock())
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
        epochs.append(register_broker(store, 0, [endpoint], FakeClock(), rack="r"))
        data, stat = await store.get("/brokers/ids/0")
        assert znodes.decode_broker(data)[:2] == ((endpoint,), "r")
        assert stat.ephemeral_owner == store.session_id
        await store.close()
    assert epochs[1] > epochs[0]


@in_loop
async def test_generated_broker_ids_are_above_the_reserved_ones_and_never_the_same(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    find_cluster(store, None)
    assert [generate_broker_id(store, 1000) for _ in range(3)] == [1001, 1002, 1003]
    await store.close()


@in_loop
async def test_several_brokers_find_one_cluster(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    cluster_id = find_cluster(store, None)
    assert len(cluster_id) == 22
    assert find_cluster(store.new_session(), None) == cluster_id
    assert find_cluster(store.new_session(), cluster_id) == cluster_id
    with pytest.raises(InconsistentClusterId):
        find_cluster(store, "R1CwuFLDT_Ws1G6P3jI_1g")
    await store.close()
