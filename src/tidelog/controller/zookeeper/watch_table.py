"""The watches that a session has at the server, by what the server keeps them for.

    DATA    the node was there: waits for its change or deletion
    EXIST   it was not: waits for its creation
    CHILD   waits for children added or removed, and for the node's deletion

The server forgets watches with the connection, so the table is what they are set again from. It is
touched only by the thread that reads the connection: a watch enters with the answer that set it and
leaves with its event, in the order of the wire.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.controller.metadata_store import EventType, Watcher


class WatchKind(Enum):
    DATA = "data"
    EXIST = "exist"
    CHILD = "child"


_FIRED_BY: Final = {
    EventType.CREATED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.CHANGED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.DELETED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD),
    EventType.CHILD: (WatchKind.CHILD,),
}


class WatchTable:
    def __init__(self) -> None:
        self._watchers: dict[WatchKind, dict[str, dict[Watcher, None]]] = {
            kind: {} for kind in WatchKind
        }

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        self._watchers[kind].setdefault(path, {})[watcher] = None

    def take(self, event: EventType, path: str) -> list[Watcher]:
        """Those that the event fires, each once; they are watches no more."""
        fired: dict[Watcher, None] = {}
        for kind in _FIRED_BY[event]:
            fired.update(self._watchers[kind].pop(path, {}))
        return list(fired)

    def paths(self, kind: WatchKind) -> list[str]:
        return list(self._watchers[kind])

    def clear(self) -> None:
        for by_path in self._watchers.values():
            by_path.clear()
