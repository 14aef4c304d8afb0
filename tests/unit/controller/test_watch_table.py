from __future__ import annotations

from tidelog.controller.metadata_store import EventType, WatchedEvent
from tidelog.controller.zookeeper.watch_table import WatchKind, WatchTable


def first(event: WatchedEvent) -> None:
    raise AssertionError("the table does not call")


def second(event: WatchedEvent) -> None:
    raise AssertionError("the table does not call")


def test_a_watch_is_taken_once() -> None:
    table = WatchTable()
    table.add(WatchKind.DATA, "/a", first)
    assert table.take(EventType.CHANGED, "/a") == [first]
    assert table.take(EventType.CHANGED, "/a") == []


def test_a_child_watch_is_not_for_data_nor_the_other_way_round() -> None:
    table = WatchTable()
    table.add(WatchKind.DATA, "/a", first)
    table.add(WatchKind.CHILD, "/a", second)
    assert table.take(EventType.CHILD, "/a") == [second]
    assert table.paths(WatchKind.DATA) == ["/a"]
    assert table.paths(WatchKind.CHILD) == []


def test_a_deletion_takes_all_kinds_and_each_watcher_once() -> None:
    table = WatchTable()
    table.add(WatchKind.DATA, "/a", first)
    table.add(WatchKind.CHILD, "/a", first)
    table.add(WatchKind.CHILD, "/a", second)
    assert table.take(EventType.DELETED, "/a") == [first, second]
    assert [table.paths(kind) for kind in WatchKind] == [[], [], []]


def test_a_creation_takes_the_watches_for_it() -> None:
    table = WatchTable()
    table.add(WatchKind.EXIST, "/a", first)
    assert table.take(EventType.CREATED, "/b") == []
    assert table.take(EventType.CREATED, "/a") == [first]


def test_a_session_that_is_over_has_none() -> None:
    table = WatchTable()
    table.add(WatchKind.EXIST, "/a", first)
    table.clear()
    assert table.paths(WatchKind.EXIST) == []
