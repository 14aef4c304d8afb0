"""The store's operations as ZooKeeper's requests, and its answers as the store's.

Every write is a multi, also one of a single operation: it has one answer, one zxid and an index for
its error. A node without data holds null and not an empty string, as Kafka makes it: Kafka's
brokers tell `/latest_producer_id_block` without a block by that. Access is open to all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from tidelog.controller.metadata_store import (
    BadArguments,
    BadVersion,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Outcome,
    SetData,
    Stat,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WatchedEvent,
    Watcher,
    parent_of,
    require_valid_path,
)

REQUEST_BYTES_MAX: Final = 0xFFFFF  # jute.maxbuffer, unless the servers have another
OPERATION_BYTES: Final = 64  # of an operation besides its path and data, at most
EPHEMERAL: Final = 1
SEQUENCE: Final = 2

# The connection is gone, or the session is served elsewhere by now: to be tried again.
LOST: Final = (exceptions.ConnectionLoss, exceptions.SessionMovedError)
ZOOKEEPER_ERROR: Final = exceptions.KazooException
# Nothing more comes of this session.
ENDED: Final = (exceptions.SessionExpiredError, exceptions.ConnectionClosedError)

_ERRORS: Final[dict[type[Exception], type[StoreError]]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    exceptions.BadArgumentsError: BadArguments,
    exceptions.SessionExpiredError: StoreClosed,
    exceptions.ConnectionClosedError: StoreClosed,
}
# How the operations around the one that failed are marked in the answer to a multi.
_NOT_AT_FAULT: Final = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)


def store_error(error: Exception, path: str, index: int | None = None) -> StoreError:
    made = _ERRORS.get(type(error), StoreUnavailable)(path, index)
    made.__cause__ = error
    return made


class Chroot:
    """Paths as the broker says them and as the server knows them."""

    def __init__(self, path: str) -> None:
        self.path = path

    def full(self, path: str) -> str:
        return (self.path + path if path != "/" else self.path) or "/"

    def below(self, full: str) -> str:
        return full.removeprefix(self.path) or "/"

    def watcher(self, watcher: Watcher) -> Watcher:
        return _ChrootWatcher(self, watcher) if self.path else watcher


class _ChrootWatcher:
    """Equal to any other for the same watcher, so that it is kept once."""

    __slots__ = ("_chroot", "_watcher")

    def __init__(self, chroot: Chroot, watcher: Watcher) -> None:
        self._chroot = chroot
        self._watcher = watcher

    def __call__(self, event: WatchedEvent) -> None:
        self._watcher(WatchedEvent(event.type, self._chroot.below(event.path)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ChrootWatcher) and self._watcher == other._watcher

    def __hash__(self) -> int:
        return hash(self._watcher)


def require_valid(operations: Sequence[Operation]) -> None:
    """What ZooKeeper would refuse later, not at all because of the chroot, or by hanging up."""
    size = sum(OPERATION_BYTES + _content_bytes(operation) for operation in operations)
    if size > REQUEST_BYTES_MAX:
        raise BadArguments(operations[0].path) from ValueError(
            f"{size} bytes in one request; ZooKeeper takes {REQUEST_BYTES_MAX}"
        )
    for index, operation in enumerate(operations):
        path = operation.path
        try:
            require_valid_path(
                path + "0" if isinstance(operation, Create) and operation.sequence else path
            )
            if path == "/" and isinstance(operation, Create) and not operation.sequence:
                raise NodeExists(path)
            if path == "/" and isinstance(operation, Delete):
                raise BadArguments(path)
        except StoreError as error:
            error.index = index
            raise


def _content_bytes(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path.encode()) + len(data)


def transaction(operations: Sequence[Operation], full: Callable[[str], str]) -> Any:
    return serialization.Transaction([_request(operation, full) for operation in operations])


def _request(operation: Operation, full: Callable[[str], str]) -> Any:
    if isinstance(operation, Create):
        path = operation.path
        # The parent of a sequence node may be the chroot, and then its name may be empty.
        name = path[path.rindex("/") :]
        parent = full(parent_of(path))
        flags = EPHEMERAL * operation.ephemeral + SEQUENCE * operation.sequence
        return serialization.Create(
            (parent if parent != "/" else "") + name,
            operation.data or None,
            OPEN_ACL_UNSAFE,
            flags,
        )
    path = full(operation.path)
    if isinstance(operation, SetData):
        return serialization.SetData(path, operation.data or None, operation.version)
    if isinstance(operation, Delete):
        return serialization.Delete(path, operation.version)
    return serialization.CheckVersion(path, operation.version)


def failure(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Which operation of a multi was refused, and why."""
    refused = None
    for index, result in enumerate(results):
        if isinstance(result, Exception):
            refused = index, result
            if not isinstance(result, _NOT_AT_FAULT):
                break
    return refused


def outcomes(results: Sequence[Any], below: Callable[[str], str]) -> list[Outcome]:
    return [_outcome(result, below) for result in results]


def _outcome(result: Any, below: Callable[[str], str]) -> Outcome:
    if isinstance(result, str):
        return below(result)
    if isinstance(result, ZnodeStat):
        return int(result.version)
    return None


def stat_of(stat: Any) -> Stat:
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        num_children=stat.numChildren,
    )
