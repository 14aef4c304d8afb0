"""What the embedded store adds to the contract: durable files, group commit, snapshots."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import metadata_writer
from tests.support.loop_turns import LoopTurns, counted_slices
from tests.support.metadata import contents, in_loop, no_space, open_store
from tests.support.node_model import NodeModel
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.journal import JOURNAL_NAME, SNAPSHOT_NAME, StoreLocked
from tidelog.controller.metadata_store import (
    Check,
    Create,
    Delete,
    EventType,
    NodeExists,
    Operation,
    SetData,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WatchedEvent,
)

KILLS = 20


@in_loop
async def test_writes_made_together_share_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    store = open_store(tmp_path)
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    await asyncio.gather(*(store.create(f"/{n}") for n in range(100)))
    assert len(syncs) == 1
    await store.close()


@in_loop
async def test_a_write_is_not_seen_before_it_is_durable(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    making = asyncio.ensure_future(store.create("/a"))
    await asyncio.sleep(0)
    assert await store.exists("/a") is None
    await making
    assert await store.exists("/a") is not None
    await store.close()


@in_loop
async def test_the_loop_goes_on_while_the_disk_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    loop = asyncio.get_running_loop()
    turned = asyncio.Event()

    def sync_after_the_loop_has_turned(descriptor: int) -> None:
        asyncio.run_coroutine_threadsafe(turned.wait(), loop).result(timeout=60)

    monkeypatch.setattr(os, "fdatasync", sync_after_the_loop_has_turned)
    making = asyncio.ensure_future(store.create("/a"))
    await asyncio.sleep(0)
    turned.set()
    assert await making == "/a"
    await store.close()


@in_loop
async def test_a_caller_that_is_cancelled_does_not_undo_its_write(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    making = asyncio.ensure_future(store.create("/a"))
    await asyncio.sleep(0)
    making.cancel()
    await store.create("/b")
    assert await store.children("/") == ["a", "b"]
    await store.close()


@in_loop
async def test_a_failed_sync_fails_all_writes_under_way_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    await store.create("/kept")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        first = asyncio.ensure_future(store.create("/a"))
        await asyncio.sleep(0)
        results = await asyncio.gather(first, store.create("/a/b"), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
    assert await store.children("/") == ["kept"]
    await store.create("/a", b"later")
    await store.close()
    assert contents(open_store(tmp_path)) == {"/": b"", "/a": b"later", "/kept": b""}


def large(prefix: str, count: int = 1000) -> list[Operation]:
    return [Create(f"{prefix}{n}") for n in range(count)]


@in_loop
async def test_a_large_multi_is_checked_a_slice_a_turn_and_seen_as_a_whole(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store._database._slices = counted_slices(50)
    seen: set[int] = set()
    async with LoopTurns() as turns:
        making = asyncio.ensure_future(store.multi(large("/n")))
        while not making.done():
            seen.add(len(await store.children("/")))
            turns.note()
            await asyncio.sleep(0)
    assert seen <= {0, 1000}
    assert turns.total >= 1000 // 50
    assert len(await making) == 1000
    await store.close()


@in_loop
async def test_writes_behind_a_large_one_are_judged_after_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    results = await asyncio.gather(
        store.multi(large("/n")),
        store.create("/n999/child"),
        store.create("/n5"),
        store.multi([*large("/m"), Create("/n7")]),
        return_exceptions=True,
    )
    assert results[1] == "/n999/child"
    assert isinstance(results[2], NodeExists)
    assert isinstance(results[3], NodeExists)
    assert results[3].index == 1000
    assert len(await store.children("/")) == 1000
    await store.close()


@in_loop
async def test_a_large_write_that_rests_on_a_lost_one_is_lost_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        parent = asyncio.ensure_future(store.create("/parent"))
        await asyncio.sleep(0)
        store._database._slices = counted_slices(1)
        children = asyncio.ensure_future(store.multi(large("/parent/")))
        results = await asyncio.gather(parent, children, return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
    await store.create("/later")
    await store.close()
    assert contents(open_store(tmp_path)) == {"/": b"", "/later": b""}


def test_a_blocking_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        with pytest.raises(StoreUnavailable):
            store.multi_now([Create("/a")])
    store.multi_now([Create("/a")])
    assert contents(store) == {"/": b"", "/a": b""}


@in_loop
async def test_a_store_that_cannot_take_a_failed_write_back_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    await store.create("/kept")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        patch.setattr(os, "ftruncate", no_space)
        with pytest.raises(StoreUnavailable):
            await store.create("/a")
    with pytest.raises(StoreUnavailable):
        await store.create("/b")
    assert await store.children("/") == ["kept"]
    await store.close()


@in_loop
async def test_ephemeral_nodes_cost_no_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    monkeypatch.setattr(os, "fdatasync", no_space)
    await store.create("/e", ephemeral=True)
    await store.set("/e", b"x")
    await store.delete("/e")
    await store.close()


@in_loop
async def test_nodes_that_are_made_while_their_session_ends_go_with_it(tmp_path: Path) -> None:
    one = EmbeddedStore.open(tmp_path)
    two = one.new_session()
    await two.create("/registered", ephemeral=True)
    early = asyncio.create_task(two.create("/early", ephemeral=True))
    await asyncio.sleep(0)  # it has been asked for
    ending = asyncio.create_task(two.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreClosed):
        await two.create("/late", ephemeral=True)
    await asyncio.gather(early, ending)
    assert await one.children("/") == []
    await one.close()


@in_loop
async def test_two_sessions_share_the_nodes_but_not_the_ephemerals(tmp_path: Path) -> None:
    one = open_store(tmp_path)
    two = one.new_session()
    seen: list[WatchedEvent] = []
    await one.create("/e", ephemeral=True)
    assert await two.exists("/e", watch=seen.append) is not None
    await one.close()
    assert seen == [WatchedEvent(EventType.DELETED, "/e")]
    assert await two.exists("/e") is None
    await two.close()


def test_a_directory_is_open_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreLocked):
        open_store(tmp_path)
    asyncio.run(store.close())
    asyncio.run(open_store(tmp_path).close())


@in_loop
async def test_the_journal_is_bounded_by_snapshots(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path, journal_bytes_max=1000)
    await store.create("/a")
    await store.create("/e", ephemeral=True)
    for n in range(200):
        await store.set("/a", b"%d" % n)
    assert (tmp_path / JOURNAL_NAME).stat().st_size < 1300
    stat = await store.exists("/a")
    await store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [JOURNAL_NAME, SNAPSHOT_NAME]
    again = open_store(tmp_path)
    assert await again.get("/a") == (b"199", stat)
    assert await again.exists("/e") is None
    await again.close()


def test_a_journal_that_only_grew_by_starts_is_folded_at_a_start(tmp_path: Path) -> None:
    for n in range(10):
        store = EmbeddedStore.open(tmp_path, journal_bytes_max=300)
        store.multi_now([Create(f"/{n}", bytes(100))])
        asyncio.run(store.close())
    assert (tmp_path / SNAPSHOT_NAME).exists()
    assert len(contents(open_store(tmp_path))) == 11


@in_loop
async def test_a_crash_between_snapshot_and_cutting_the_journal_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    journal = tmp_path / JOURNAL_NAME
    store = EmbeddedStore.open(tmp_path, journal_bytes_max=100_000)
    await store.create("/q")
    for _ in range(5):
        await store.create("/q/n", sequence=True)
    whole = journal.read_bytes()
    expected = contents(store)
    await store.close()
    folding = EmbeddedStore.open(tmp_path, journal_bytes_max=1)
    await folding.close()
    assert (tmp_path / SNAPSHOT_NAME).exists()
    journal.write_bytes(whole)
    again = open_store(tmp_path)
    assert contents(again) == expected
    assert await again.create("/q/n", sequence=True) == "/q/n0000000005"
    await again.close()


def test_every_acknowledged_multi_outlives_a_kill_and_no_other_is_there_in_part(
    tmp_path: Path,
) -> None:
    chance = random.Random(20)
    acknowledged: set[int] = set()
    for round in range(KILLS):
        acknowledged |= write_until_killed(tmp_path, round * 1_000_000, chance.uniform(0, 0.06))
        store = EmbeddedStore.open(tmp_path)
        left = {path.rpartition("/")[2] for path in contents(store, "/left")} - {"left"}
        right = {path.rpartition("/")[2] for path in contents(store, "/right")} - {"right"}
        assert left == right
        there = {int(name) for name in left}
        assert acknowledged <= there
        latest = contents(store, "/latest")["/latest"]
        assert latest == b"%d" % max(there)
        asyncio.run(store.close())
    assert acknowledged


def write_until_killed(directory: Path, first: int, seconds: float) -> set[int]:
    """Runs the writer, kills it a while after its first multi; what it was told is durable."""
    process = subprocess.Popen(
        [sys.executable, metadata_writer.__file__, str(directory), str(first)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        lines = [output.readline()]
        time.sleep(seconds)
        process.kill()
        lines += output.readlines()
    return {int(line) for line in lines if line.endswith(b"\n")}


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep", "/bad/"])
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
BYTES = st.binary(max_size=3)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, BYTES, st.booleans(), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, BYTES, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
# A step is multis made at once, before any is durable; none of them stands for a restart.
STEPS = st.lists(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=4), max_size=8)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_store_does_what_a_simple_model_does(steps: list[list[list[Operation]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(follow_the_model(Path(directory), steps))


async def follow_the_model(directory: Path, steps: list[list[list[Operation]]]) -> None:
    store = EmbeddedStore.open(directory, journal_bytes_max=200)
    model = NodeModel()
    for multis in steps:
        if not multis:
            await store.close()
            store = EmbeddedStore.open(directory, journal_bytes_max=200)
            model.end_session(
                {p: (s.cversion + s.num_children) // 2 for p, _, s in store.subtree("/")}
            )
        outcomes = await asyncio.gather(
            *(store.multi(operations) for operations in multis), return_exceptions=True
        )
        for operations, outcome in zip(multis, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                assert (type(outcome), outcome.index) == model.multi(operations)
            else:
                assert outcome == model.multi(operations)
        assert {
            path: (data, stat.version, stat.cversion, stat.num_children)
            for path, data, stat in store.subtree("/")
        } == model.rows()
    await store.close()
