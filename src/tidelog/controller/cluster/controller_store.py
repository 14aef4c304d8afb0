"""The store as the controller may use it: it becomes the controller there, and writes as such.

Becoming the controller: /controller is free, and /controller_epoch grows by one, in one multi. A
broker that loses the race finds /controller there, or the epoch changed: ControllerMoved.

Every further multi checks the version that /controller_epoch got by this. The next election changes
that version, so a controller that has lost its place without knowing cannot write any more:
ControllerMoved. While the store cannot be reached, calls wait and try again; they end with the
event that makes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from tidelog.clock import Clock, Timer, pause
from tidelog.controller import znodes
from tidelog.controller.metadata_store import (
    BadVersion,
    Check,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    Stat,
    StoreClosed,
    StoreUnavailable,
    Watcher,
)

INITIAL_EPOCH: Final = 0


RETRY_BACKOFF_S: Final = 0.1
MULTI_BYTES_MAX: Final = 512 * 1024  # ZooKeeper takes 1 MiB
OPERATION_OVERHEAD_BYTES: Final = 64
T = TypeVar("T")


class ControllerRegistration(NamedTuple):
    epoch: int
    epoch_version: int  # of /controller_epoch: what every write checks


async def register_controller(
    store: MetadataStore, broker_id: int, clock: Clock
) -> ControllerRegistration:
    epoch, version = await _current_epoch(store)
    registration = ControllerRegistration(epoch + 1, version + 1)
    controller = znodes.encode_controller(broker_id, clock.time_ms())
    try:
        await store.multi(
            [
                Create(znodes.CONTROLLER, controller, ephemeral=True),
                SetData(
                    znodes.CONTROLLER_EPOCH,
                    znodes.encode_controller_epoch(registration.epoch),
                    version,
                ),
            ]
        )
    except (NodeExists, BadVersion) as error:
        if not await _is_ours(store, registration):
            raise ControllerMoved from error
    return registration


async def _current_epoch(store: MetadataStore) -> tuple[int, int]:
    try:
        data, stat = await store.get(znodes.CONTROLLER_EPOCH)
    except NoNode:
        try:
            encoded = znodes.encode_controller_epoch(INITIAL_EPOCH)
            await store.create(znodes.CONTROLLER_EPOCH, encoded)
        except NodeExists:
            pass
        data, stat = await store.get(znodes.CONTROLLER_EPOCH)
    return znodes.decode_controller_epoch(data), stat.version


async def _is_ours(store: MetadataStore, registration: ControllerRegistration) -> bool:
    """Whether the registration has gone through after all, its answer having been lost."""
    try:
        _, controller = await store.get(znodes.CONTROLLER)
    except NoNode:
        return False
    _, epoch = await store.get(znodes.CONTROLLER_EPOCH)
    return (
        controller.ephemeral_owner == store.session_id
        and epoch.version == registration.epoch_version
    )


class ControllerMoved(Exception):
    """Another broker is the controller, or this one has lost its session."""


class Conflict(Exception):
    """The store is not as this write took it to be."""


class ControllerStore:
    def __init__(self, store: MetadataStore, epoch_version: int, timer: Timer) -> None:
        self._store = store
        self._check = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._timer = timer

    async def write(self, operations: Iterable[Operation]) -> None:
        """In as few multis as ZooKeeper takes; when one is refused, those before it are done.

        A Check holds for what follows it up to the next one, also in another multi.
        """
        for multi in in_multis(operations):
            await self._write(multi)

    async def _write(self, operations: Sequence[Operation]) -> None:
        checked = [self._check, *operations]
        try:
            await self._persistently(lambda: self._store.multi(checked))
        except (BadVersion, NoNode, NodeExists, NotEmpty) as error:
            if error.index == 0:
                raise ControllerMoved from error
            raise Conflict(error.path) from error

    async def get_or_none(
        self, path: str, *, watch: Watcher | None = None
    ) -> tuple[bytes, Stat] | None:
        try:
            return await self._persistently(lambda: self._store.get(path, watch=watch))
        except NoNode:
            return None

    async def exists(self, path: str, *, watch: Watcher | None = None) -> bool:
        found = await self._persistently(lambda: self._store.exists(path, watch=watch))
        return found is not None

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        """None if the node is not there; then there is no watch either."""
        try:
            return await self._persistently(lambda: self._store.children(path, watch=watch))
        except NoNode:
            return []

    async def pause(self) -> None:
        await pause(self._timer, RETRY_BACKOFF_S)

    async def _persistently(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await self.pause()
            except StoreClosed as error:
                raise ControllerMoved from error


def in_multis(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    multi: list[Operation] = []
    size_bytes = 0
    check: Check | None = None
    for operation in operations:
        added_bytes = _size_bytes(operation)
        if multi and size_bytes + added_bytes > MULTI_BYTES_MAX:
            yield multi
            multi = [] if check is None or isinstance(operation, Check) else [check]
            size_bytes = sum(map(_size_bytes, multi))
        if isinstance(operation, Check):
            check = operation
        multi.append(operation)
        size_bytes += added_bytes
    if multi:
        yield multi


def _size_bytes(operation: Operation) -> int:
    """At most: a parent that is made on the way counts too."""
    size_bytes = len(operation.path) + OPERATION_OVERHEAD_BYTES
    if isinstance(operation, Create | SetData):
        size_bytes += len(operation.data)
    if isinstance(operation, Create) and operation.make_parents:
        size_bytes += len(operation.path) + OPERATION_OVERHEAD_BYTES
    return size_bytes
