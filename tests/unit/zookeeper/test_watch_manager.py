from __future__ import annotations

from tidelog.controller.access_lists import AccessEntry, AccessList
from tidelog.controller.metadata_store import EventType
from tidelog.controller.node_tree import Change, ChangeKind, NodeTree, Transaction
from tidelog.zookeeper.watch_manager import WatchKind, WatchManager

CREATED, CHANGED, DELETED, CHILD = (
    EventType.CREATED,
    EventType.CHANGED,
    EventType.DELETED,
    EventType.CHILD,
)


class Ear:
    def __init__(self) -> None:
        self.watches: set[tuple[WatchKind, str]] = set()
        self.heard: list[tuple[EventType, str]] = []
        self.may_read_all = True

    def may_read(self, access: AccessList) -> bool:
        return self.may_read_all

    def send_event(self, type: EventType, path: str) -> None:
        self.heard.append((type, path))


def happen(manager: WatchManager, *changes: tuple[ChangeKind, str]) -> None:
    rows = [Change(kind, path, b"", 0, 0) for kind, path in changes]
    manager.applied(Transaction(1, 0, rows), {})


def test_a_one_shot_watch_fires_once() -> None:
    manager, ear = WatchManager(NodeTree()), Ear()
    manager.add(ear, WatchKind.DATA, "/a")
    happen(manager, (ChangeKind.SET, "/a"), (ChangeKind.SET, "/a"))
    assert ear.heard == [(CHANGED, "/a")]
    assert (manager.count, ear.watches) == (0, set())


def test_a_deletion_is_heard_once_though_two_watches_wait_for_it() -> None:
    manager, ear = WatchManager(NodeTree()), Ear()
    manager.add(ear, WatchKind.DATA, "/p/a")
    manager.add(ear, WatchKind.CHILD, "/p/a")
    manager.add(ear, WatchKind.CHILD, "/p")
    happen(manager, (ChangeKind.DELETED, "/p/a"))
    assert ear.heard == [(DELETED, "/p/a"), (CHILD, "/p")]


def test_a_persistent_watch_stays_and_hears_of_the_node_and_its_children() -> None:
    manager, ear = WatchManager(NodeTree()), Ear()
    manager.add(ear, WatchKind.PERSISTENT, "/p")
    happen(
        manager,
        (ChangeKind.CREATED, "/p"),
        (ChangeKind.CREATED, "/p/a"),
        (ChangeKind.SET, "/p/a"),
        (ChangeKind.SET, "/p"),
        (ChangeKind.DELETED, "/p/a"),
    )
    assert ear.heard == [(CREATED, "/p"), (CHILD, "/p"), (CHANGED, "/p"), (CHILD, "/p")]
    assert manager.remove(ear, WatchKind.PERSISTENT, "/p")
    assert not manager.remove(ear, WatchKind.PERSISTENT, "/p")


def test_a_recursive_watch_hears_of_all_below_and_not_of_lists_of_children() -> None:
    manager, ear = WatchManager(NodeTree()), Ear()
    manager.add(ear, WatchKind.RECURSIVE, "/p")
    happen(
        manager,
        (ChangeKind.CREATED, "/p/a"),
        (ChangeKind.CREATED, "/p/a/b"),
        (ChangeKind.SET, "/p/a/b"),
        (ChangeKind.CREATED, "/q"),
    )
    assert ear.heard == [(CREATED, "/p/a"), (CREATED, "/p/a/b"), (CHANGED, "/p/a/b")]


def test_watches_of_a_connection_that_ends_are_removed_step_by_step() -> None:
    manager, gone, other = WatchManager(NodeTree()), Ear(), Ear()
    for number in range(10):
        manager.add(gone, WatchKind.DATA, f"/{number}")
    manager.add(other, WatchKind.DATA, "/1")
    assert sum(1 for _ in manager.remove_all(gone)) == 10
    assert manager.count == 1
    happen(manager, (ChangeKind.SET, "/1"))
    assert (gone.heard, other.heard) == ([], [(CHANGED, "/1")])


def test_who_may_not_read_a_node_does_not_hear_of_it() -> None:
    tree = NodeTree()
    manager, insider, outsider = WatchManager(tree), Ear(), Ear()
    outsider.may_read_all = False
    for zxid, kind in enumerate((ChangeKind.CREATED, ChangeKind.SET, ChangeKind.DELETED), 1):
        for ear in (insider, outsider):
            manager.add(ear, WatchKind.DATA, "/a")
            manager.add(ear, WatchKind.CHILD, "/")
        changes = [Change(kind, "/a", b"", 0, zxid)]
        if kind is ChangeKind.CREATED:
            secret = AccessList([AccessEntry(1, "digest", "me:x")]).encoded
            changes.append(Change(ChangeKind.ACCESS_GIVEN, "/a", secret, 0, 0))
        transaction = Transaction(zxid, 0, changes)
        manager.applied(transaction, tree.apply(transaction))
    of_node = [event for event in insider.heard if event[1] == "/a"]
    assert of_node == [(CREATED, "/a"), (CHANGED, "/a"), (DELETED, "/a")]
    assert outsider.heard == [(CHILD, "/"), (CHILD, "/")]
    assert (WatchKind.DATA, "/a") not in outsider.watches
