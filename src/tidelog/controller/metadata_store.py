"""The metadata store as the broker sees it: ZooKeeper's data model, whoever keeps the data.

A tree of nodes named by slash-separated paths. A node holds bytes and a version that grows by one
with each change. An ephemeral node lives as long as the session that made it and has no children.
A sequence node gets the parent's ten-digit counter appended to its name. A watch fires once, after
the change that it waited for is visible and before whoever made the change is answered.

What an implementation owes
- `multi` happens entirely or not at all, and once it has returned it survives a crash.
- Writes of one session take effect in the order they were made.
- A read shows only what is durable: nobody acts on a write that a crash could take back.
- `subtree` and `multi_now` block and are for start-up, before requests are served.

Errors
    StoreError
      NoNode, NodeExists, BadVersion, NotEmpty, NoChildrenForEphemerals, BadArguments
      StoreUnavailable   the write is not durable and was not applied
        OutcomeUnknown   the write was sent and its answer lost: it may have been applied
      StoreClosed        the session has ended; a write under way may have been applied
Out of `multi` an error carries the index of the operation that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

ANY_VERSION: Final = -1


class _NoData(bytes):
    """Equal to empty data; ZooKeeper tells the two apart."""


NO_DATA: Final = _NoData()


class Stat(NamedTuple):
    czxid: int  # transaction that made the node
    mzxid: int  # transaction that last set its data
    pzxid: int  # transaction that last added or removed a child
    ctime_ms: int
    mtime_ms: int
    version: int  # changes of the data
    cversion: int  # children added and removed
    ephemeral_owner: int  # session id, 0 for a persistent node
    data_length: int
    num_children: int
    aversion: int = 0  # changes of the access list


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False
    make_parents: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fails the multi unless the node exists and has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check

# Create gives the path made, SetData the new version, the others nothing.
Outcome = str | int | None


class EventType(IntEnum):
    """ZooKeeper's numbers."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


class WatchedEvent(NamedTuple):
    type: EventType
    path: str


Watcher = Callable[[WatchedEvent], None]


class StoreError(Exception):
    def __init__(self, path: str, index: int | None = None) -> None:
        super().__init__(path)
        self.path = path
        self.index = index


class NoNode(StoreError):
    pass


class NodeExists(StoreError):
    pass


class BadVersion(StoreError):
    pass


class NotEmpty(StoreError):
    pass


class NoChildrenForEphemerals(StoreError):
    pass


class BadArguments(StoreError):
    pass


class StoreUnavailable(StoreError):
    pass


class OutcomeUnknown(StoreUnavailable):
    pass


class StoreClosed(StoreError):
    pass


class SessionState(Enum):
    """What happened to the session with a store that is another process."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"  # the session may go on, or expire unnoticed
    EXPIRED = "expired"  # ephemeral nodes and watches are gone; a new session follows


class MetadataStore(Protocol):
    """One session. Touched only on the broker's loop. Every write is a `multi`."""

    @property
    def session_id(self) -> int: ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        made = await self.multi([Create(path, data, ephemeral, sequence, make_parents)])
        assert isinstance(made[0], str)
        return made[0]

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        made = await self.multi([SetData(path, data, version)])
        assert isinstance(made[0], int)
        return made[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None: ...

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]: ...

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]: ...

    def multi_now(self, operations: Sequence[Operation]) -> list[Outcome]: ...

    def subtree(self, path: str) -> Iterator[tuple[str, bytes, Stat]]:
        """The node and all below it, parents first, siblings by name; nothing if it is absent."""

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go, its watches are dropped."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def require_valid_path(path: str) -> None:
    """ZooKeeper's rules for a path."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise BadArguments(path)
    if "/." in path and any(part in (".", "..") for part in path.split("/")):
        raise BadArguments(path)
