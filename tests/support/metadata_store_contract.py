"""What every metadata store owes: the tests of an implementation are a subclass.

The subclass has a fixture `open_one`, a function that opens a session on the same, at first empty
store each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.support.metadata import contents, in_loop
from tidelog.controller.metadata_store import (
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    EventType,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
    StoreClosed,
    WatchedEvent,
)

Open = Callable[[], MetadataStore]


class MetadataStoreContract:
    @in_loop
    async def test_a_created_node_has_its_data_and_version_0(self, open_one: Open) -> None:
        store = open_one()
        assert await store.create("/a", b"one") == "/a"
        data, stat = await store.get("/a")
        assert data == b"one"
        assert (stat.version, stat.data_length, stat.num_children) == (0, 3, 0)
        assert stat.czxid == stat.mzxid
        await store.close()

    @in_loop
    async def test_setting_data_raises_the_version_and_the_mzxid(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a")
        before = (await store.get("/a"))[1]
        assert await store.set("/a", b"two") == 1
        data, stat = await store.get("/a")
        assert (data, stat.version) == (b"two", 1)
        assert stat.czxid == before.czxid
        assert stat.mzxid > before.mzxid
        await store.close()

    @in_loop
    async def test_a_write_with_another_version_is_refused(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a")
        await store.set("/a", b"1", 0)
        with pytest.raises(BadVersion):
            await store.set("/a", b"2", 0)
        with pytest.raises(BadVersion):
            await store.delete("/a", 0)
        assert (await store.get("/a"))[0] == b"1"
        await store.close()

    @in_loop
    async def test_a_missing_node_cannot_be_read_changed_or_listed(self, open_one: Open) -> None:
        store = open_one()
        for attempt in (
            store.get("/a"),
            store.set("/a", b""),
            store.delete("/a"),
            store.children("/a"),
            store.create("/a/b"),
        ):
            with pytest.raises(NoNode):
                await attempt
        assert await store.exists("/a") is None
        await store.close()

    @in_loop
    async def test_a_node_is_made_once(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a", b"first")
        with pytest.raises(NodeExists):
            await store.create("/a", b"second")
        assert (await store.get("/a"))[0] == b"first"
        await store.close()

    @in_loop
    async def test_missing_parents_are_made_when_asked_for(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a/b/c", b"deep", make_parents=True)
        assert contents(store) == {"/": b"", "/a": b"", "/a/b": b"", "/a/b/c": b"deep"}
        await store.close()

    @in_loop
    async def test_a_node_with_children_cannot_be_deleted(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a/b", make_parents=True)
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")
        assert await store.exists("/a") is None
        await store.close()

    @in_loop
    async def test_children_are_names_in_order(self, open_one: Open) -> None:
        store = open_one()
        for name in ("b", "c", "a"):
            await store.create(f"/{name}")
        assert await store.children("/") == ["a", "b", "c"]
        stat = await store.exists("/")
        assert stat is not None
        assert (stat.num_children, stat.cversion) == (3, 3)
        await store.delete("/b")
        stat = await store.exists("/")
        assert stat is not None
        assert (stat.num_children, stat.cversion) == (2, 4)
        await store.close()

    @in_loop
    async def test_sequence_nodes_are_numbered_and_a_number_is_not_used_again(
        self, open_one: Open
    ) -> None:
        store = open_one()
        await store.create("/q")
        assert await store.create("/q/n_", sequence=True) == "/q/n_0000000000"
        assert await store.create("/q/n_", sequence=True) == "/q/n_0000000001"
        await store.delete("/q/n_0000000001")
        assert await store.create("/q/", sequence=True) == "/q/0000000002"
        await store.close()

    @in_loop
    async def test_a_multi_happens_entirely_or_not_at_all(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a", b"old")
        before = contents(store)
        with pytest.raises(NodeExists) as raised:
            await store.multi([SetData("/a", b"new"), Create("/b"), Create("/b")])
        assert (raised.value.index, raised.value.path) == (2, "/b")
        assert contents(store) == before
        await store.close()

    @in_loop
    async def test_operations_of_a_multi_see_those_before_them(self, open_one: Open) -> None:
        store = open_one()
        outcomes = await store.multi(
            [
                Create("/a", b"1"),
                SetData("/a", b"2", 0),
                Check("/a", 1),
                Create("/a/b"),
                Create("/a/n", sequence=True),
                Delete("/a/b"),
            ]
        )
        assert outcomes == ["/a", 1, None, "/a/b", "/a/n0000000001", None]
        assert contents(store) == {"/": b"", "/a": b"2", "/a/n0000000001": b""}
        await store.close()

    @in_loop
    async def test_a_check_that_fails_stops_the_multi(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a")
        with pytest.raises(BadVersion):
            await store.multi([Check("/a", 7), Create("/b")])
        with pytest.raises(NoNode):
            await store.multi([Check("/c"), Create("/b")])
        assert await store.exists("/b") is None
        await store.close()

    @in_loop
    async def test_writes_take_effect_in_the_order_they_were_made(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a")
        versions = await asyncio.gather(*(store.set("/a", b"%d" % n) for n in range(50)))
        assert versions == list(range(1, 51))
        assert (await store.get("/a"))[0] == b"49"
        await store.close()

    @in_loop
    async def test_a_write_is_judged_by_the_writes_before_it_though_they_are_under_way(
        self,
        open_one: Open,
    ) -> None:
        store = open_one()
        first = asyncio.ensure_future(store.create("/a"))
        second = asyncio.ensure_future(store.create("/a"))
        third = asyncio.ensure_future(store.create("/a/b"))
        assert await first == "/a"
        with pytest.raises(NodeExists):
            await second
        assert await third == "/a/b"
        await store.close()

    @pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/../b", "/a\0"])
    @in_loop
    async def test_a_bad_path_is_refused(self, open_one: Open, path: str) -> None:
        store = open_one()
        with pytest.raises(BadArguments):
            await store.create(path)
        with pytest.raises(BadArguments):
            await store.get(path)
        await store.close()

    @in_loop
    async def test_the_root_is_there_and_stays(self, open_one: Open) -> None:
        store = open_one()
        assert await store.exists("/") is not None
        with pytest.raises(NodeExists):
            await store.create("/")
        with pytest.raises(BadArguments):
            await store.delete("/")
        await store.close()

    @in_loop
    async def test_what_was_written_is_there_after_a_restart(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a/b", b"x", make_parents=True)
        await store.set("/a/b", b"y")
        stat = await store.exists("/a/b")
        await store.close()
        again = open_one()
        assert await again.get("/a/b") == (b"y", stat)
        await again.close()

    @in_loop
    async def test_an_ephemeral_node_ends_with_its_session(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/e", b"here", ephemeral=True)
        stat = await store.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == store.session_id
        await store.close()
        again = open_one()
        assert await again.exists("/e") is None
        await again.close()

    @in_loop
    async def test_an_ephemeral_node_has_no_children(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/e", ephemeral=True)
        with pytest.raises(NoChildrenForEphemerals):
            await store.create("/e/child")
        await store.close()

    @in_loop
    async def test_sequence_numbers_of_ephemeral_nodes_are_not_used_again_after_a_restart(
        self,
        open_one: Open,
    ) -> None:
        store = open_one()
        await store.create("/q")
        await store.create("/q/e", ephemeral=True, sequence=True)
        assert await store.create("/q/n", sequence=True) == "/q/n0000000001"
        await store.close()
        again = open_one()
        assert await again.create("/q/n", sequence=True) == "/q/n0000000002"
        await again.close()

    @in_loop
    async def test_zxids_grow_over_a_restart(self, open_one: Open) -> None:
        store = open_one()
        await store.create("/a")
        await store.create("/e", ephemeral=True)
        before = await store.exists("/e")
        await store.close()
        again = open_one()
        await again.create("/e", ephemeral=True)
        after = await again.exists("/e")
        assert before is not None
        assert after is not None
        assert after.czxid > before.czxid
        await again.close()

    @in_loop
    async def test_a_closed_session_does_nothing(self, open_one: Open) -> None:
        store = open_one()
        await store.close()
        with pytest.raises(StoreClosed):
            await store.create("/a")
        with pytest.raises(StoreClosed):
            await store.get("/")
        await store.close()

    @in_loop
    async def test_a_watch_fires_once(self, open_one: Open) -> None:
        store = open_one()
        seen: list[WatchedEvent] = []
        await store.create("/a")
        await store.get("/a", watch=seen.append)
        await store.set("/a", b"1")
        await store.set("/a", b"2")
        assert seen == [WatchedEvent(EventType.CHANGED, "/a")]
        await store.close()

    @in_loop
    async def test_a_watch_for_a_missing_node_fires_when_it_is_made(self, open_one: Open) -> None:
        store = open_one()
        seen: list[WatchedEvent] = []
        assert await store.exists("/a", watch=seen.append) is None
        await store.create("/a")
        assert seen == [WatchedEvent(EventType.CREATED, "/a")]
        await store.close()

    @in_loop
    async def test_reading_a_missing_node_leaves_no_watch(self, open_one: Open) -> None:
        store = open_one()
        seen: list[WatchedEvent] = []
        with pytest.raises(NoNode):
            await store.get("/a", watch=seen.append)
        await store.create("/a")
        assert seen == []
        await store.close()

    @in_loop
    async def test_a_deletion_fires_every_kind_of_watch_and_each_watcher_once(
        self, open_one: Open
    ) -> None:
        store = open_one()
        seen: list[WatchedEvent] = []
        of_parent: list[WatchedEvent] = []
        await store.create("/p/a", make_parents=True)
        await store.get("/p/a", watch=seen.append)
        await store.children("/p/a", watch=seen.append)
        await store.children("/p", watch=of_parent.append)
        await store.delete("/p/a")
        assert seen == [WatchedEvent(EventType.DELETED, "/p/a")]
        assert of_parent == [WatchedEvent(EventType.CHILD, "/p")]
        await store.close()

    @in_loop
    async def test_a_child_watch_does_not_fire_for_grandchildren_or_data(
        self, open_one: Open
    ) -> None:
        store = open_one()
        seen: list[WatchedEvent] = []
        await store.create("/p/a", make_parents=True)
        await store.children("/p", watch=seen.append)
        await store.create("/p/a/b")
        await store.set("/p", b"data")
        await store.set("/p/a", b"data")
        assert seen == []
        await store.delete("/p/a/b")
        await store.delete("/p/a")
        assert seen == [WatchedEvent(EventType.CHILD, "/p")]
        await store.close()

    @in_loop
    async def test_a_watcher_finds_the_change_visible_and_may_watch_again(
        self, open_one: Open
    ) -> None:
        store = open_one()
        seen: list[bytes] = []

        def look(event: WatchedEvent) -> None:
            seen.append(contents(store, "/a")["/a"])

        await store.create("/a")
        await store.get("/a", watch=look)
        await store.set("/a", b"1")
        await store.get("/a", watch=look)
        await store.set("/a", b"2")
        assert seen == [b"1", b"2"]
        await store.close()

    @in_loop
    async def test_a_failed_multi_fires_no_watch(self, open_one: Open) -> None:
        store = open_one()
        seen: list[WatchedEvent] = []
        await store.exists("/a", watch=seen.append)
        with pytest.raises(NoNode):
            await store.multi([Create("/a"), Delete("/b")])
        assert seen == []
        await store.close()

    def test_at_start_up_writing_and_reading_need_no_loop(self, open_one: Open) -> None:
        store = open_one()
        assert store.multi_now([Create("/a"), Create("/a/b", b"x")]) == ["/a", "/a/b"]
        with pytest.raises(NodeExists):
            store.multi_now([Create("/c"), Create("/a")])
        assert contents(store) == {"/": b"", "/a": b"", "/a/b": b"x"}
        assert contents(store, "/c") == {}
        asyncio.run(store.close())

    @in_loop
    async def test_a_subtree_lists_parents_first_and_siblings_by_name(self, open_one: Open) -> None:
        store = open_one()
        for path in ("/b/y", "/b/x/1", "/a"):
            await store.create(path, make_parents=True)
        assert list(contents(store)) == ["/", "/a", "/b", "/b/x", "/b/x/1", "/b/y"]
        assert list(contents(store, "/b/x")) == ["/b/x", "/b/x/1"]
        await store.close()

    @in_loop
    async def test_who_is_refused_because_of_a_write_under_way_finds_it_when_reading_again(
        self,
        open_one: Open,
    ) -> None:
        store = open_one()
        await store.create("/a")
        first = asyncio.ensure_future(store.set("/a", b"other", 0))
        await asyncio.sleep(0)
        with pytest.raises(BadVersion):
            await store.set("/a", b"mine", 0)
        assert (await store.get("/a"))[0] == b"other"
        await first
        await store.close()
