"""Who waits for which change, as ZooKeeper's WatchManager has it.

Watches belong to a connection and end with it: a client that comes back sets its own again. A
one-shot watch fires once. A persistent one fires until it is removed, for a node and its children;
a recursive one for a node and all below it, except that it is not told of changes of children as
such. A connection hears of a change of a node once, however many of its watches wait for it.

Events are sent while the change is applied: nobody can read the change before. Who may not read the
node is not told: its event is lost, and a one-shot watch with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Protocol

from tidelog.controller.access_lists import AccessList
from tidelog.controller.metadata_store import EventType, WatchedEvent, Watcher, parent_of
from tidelog.controller.node_tree import ChangeKind, DeletedAccess, NodeTree, Transaction


class WatchKind(IntEnum):
    DATA = 0  # also of a node that is not there
    CHILD = 1
    PERSISTENT = 2
    RECURSIVE = 3


class Listener(Protocol):
    """A connection. Only the manager touches `watches`."""

    watches: set[tuple[WatchKind, str]]

    def may_read(self, access: AccessList) -> bool: ...

    def send_event(self, type: EventType, path: str) -> None: ...


_EVENTS = {
    ChangeKind.CREATED: EventType.CREATED,
    ChangeKind.SET: EventType.CHANGED,
    ChangeKind.DELETED: EventType.DELETED,
}


class WatchManager:
    """Touched only on the loop."""

    def __init__(self, tree: NodeTree) -> None:
        self._tree = tree
        self._tables: dict[WatchKind, dict[str, dict[Listener, None]]] = {
            kind: {} for kind in WatchKind
        }
        self.count = 0

    def add(self, listener: Listener, kind: WatchKind, path: str) -> None:
        if (kind, path) not in listener.watches:
            listener.watches.add((kind, path))
            self._tables[kind].setdefault(path, {})[listener] = None
            self.count += 1

    def remove(self, listener: Listener, kind: WatchKind, path: str) -> bool:
        """False if there was none."""
        if (kind, path) not in listener.watches:
            return False
        listener.watches.discard((kind, path))
        table = self._tables[kind]
        table[path].pop(listener)
        if not table[path]:
            del table[path]
        self.count -= 1
        return True

    def remove_all(self, listener: Listener) -> Iterator[None]:
        """Of a connection that has ended: one with each step, since there may be many."""
        while listener.watches:
            self.remove(listener, *next(iter(listener.watches)))
            yield

    def applied(
        self, transaction: Transaction, deleted: DeletedAccess
    ) -> Sequence[tuple[Watcher, WatchedEvent]]:
        """Sends the events of a transaction; there is nobody else to tell."""
        if self.count:
            for change in transaction.changes:
                event = _EVENTS.get(change.kind)
                if event is not None:
                    self._fire(event, change.path, deleted)
        return ()

    def _fire(self, type: EventType, path: str, deleted: DeletedAccess) -> None:
        told = self._take(WatchKind.DATA, path)
        if type is EventType.DELETED:
            told |= self._take(WatchKind.CHILD, path)
        told |= self._tables[WatchKind.PERSISTENT].get(path, {})
        if self._tables[WatchKind.RECURSIVE]:
            told |= self._recursive(path)
        self._tell(told, type, path, deleted)
        if type is not EventType.CHANGED:
            parent = parent_of(path)
            told = self._take(WatchKind.CHILD, parent)
            told |= self._tables[WatchKind.PERSISTENT].get(parent, {})
            self._tell(told, EventType.CHILD, parent, deleted)

    def _tell(
        self, told: dict[Listener, None], type: EventType, path: str, deleted: DeletedAccess
    ) -> None:
        if not told:
            return
        node = self._tree.nodes.get(path) if type is not EventType.DELETED else None
        access = node.access if node is not None else deleted.get(path)
        for listener in told:
            if access is None or listener.may_read(access):
                listener.send_event(type, path)

    def _take(self, kind: WatchKind, path: str) -> dict[Listener, None]:
        taken = self._tables[kind].pop(path, None)
        if not taken:
            return {}
        for listener in taken:
            listener.watches.discard((kind, path))
        self.count -= len(taken)
        return taken

    def _recursive(self, path: str) -> dict[Listener, None]:
        table = self._tables[WatchKind.RECURSIVE]
        found = dict(table.get(path, {}))
        while path != "/":
            path = parent_of(path)
            found |= table.get(path, {})
        return found
