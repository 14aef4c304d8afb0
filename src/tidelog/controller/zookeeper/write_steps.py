"""What a write asks of the server, request by request, where one request is not enough.

A generator yields a request, is sent its answer or thrown a StoreError, and returns the outcomes or
raises a StoreError. It knows no connection; the queue of calls restarts it from the beginning when
the connection is lost under it.

Two things need more than one request:
- Parents to be made. Which are missing is read first; then they are made in the same multi. If
  somebody made or removed one in between, it begins again.
- A write whose answer was lost. It is looked for before it is sent again, where Kafka sends it
  again and then judges the refusal. After a `sync` the server has everything that this session
  ever had accepted, so a write that is not found then will not happen by itself any more.

A write is found when all of its nodes are as it leaves them: those it made or set carry one and the
same zxid, newer than any seen before it was first sent, with its data, and the ephemeral ones
belong to this session; those it deleted are gone. What others have changed since is taken for not
found: then it is sent again, and a refusal (BadVersion, NodeExists) tells of that change.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.controller.metadata_store import (
    ANY_VERSION,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Outcome,
    SetData,
    Stat,
    StoreError,
    parent_of,
)
from tidelog.controller.zookeeper.connect_string import Chroot
from tidelog.controller.zookeeper.jute import (
    Exists,
    GetChildren,
    GetData,
    Multi,
    Refused,
    Result,
    Sync,
    refusal,
    store_error,
)

T = TypeVar("T")
Steps = Generator[Any, Any, T]

PARENT_RACES_MAX: Final = 20
SIBLINGS_MIN: Final = 8  # below that they are asked for one by one
SEQUENCE_DIGITS: Final = 10


class LostAnswer(NamedTuple):
    session_id: int
    zxid_before: int  # seen when the write was first sent


def write(
    operations: Sequence[Operation], chroot: Chroot, lost: LostAnswer | None
) -> Steps[list[Outcome]]:
    if lost is not None:
        found = yield from find_write(operations, chroot, lost)
        if found is not None:
            return found
    for attempt in range(1, PARENT_RACES_MAX + 1):
        expanded = yield from with_parents(operations, chroot)
        results = yield transaction([each.operation for each in expanded], chroot)
        refused = refusal(results)
        if refused is None:
            made = [result for each, result in zip(expanded, results, strict=True) if each.asked]
            return outcomes(made, chroot)
        position, code = refused
        index = expanded[position].source
        error = store_error(code, operations[index].path, index)
        if not _is_parent_race(expanded[position], error) or attempt == PARENT_RACES_MAX:
            raise error
    raise AssertionError("the last attempt returns or raises")


def transaction(operations: Sequence[Operation], chroot: Chroot) -> Multi:
    """A sequence node may have an empty name, and so a slash at the end of its path."""
    return Multi(
        [
            each._replace(
                path=chroot.path + each.path if isinstance(each, Create) else chroot.full(each.path)
            )
            for each in operations
        ]
    )


def outcomes(results: Sequence[Result], chroot: Chroot) -> list[Outcome]:
    """Of a multi that has happened."""
    made: list[Outcome] = []
    for result in results:
        assert not isinstance(result, Refused), results
        if isinstance(result, Stat):
            made.append(result.version)
        else:
            made.append(None if result is None else chroot.below(result))
    return made


class Expanded(NamedTuple):
    operation: Operation
    source: int  # index of the operation that it belongs to
    asked: bool  # false for a parent that is made on the way


def _is_parent_race(expanded: Expanded, error: StoreError) -> bool:
    if not expanded.asked:
        return isinstance(error, NodeExists | NoNode)
    return (
        isinstance(expanded.operation, Create)
        and expanded.operation.make_parents
        and isinstance(error, NoNode)
    )


def with_parents(operations: Sequence[Operation], chroot: Chroot) -> Steps[list[Expanded]]:
    expanded: list[Expanded] = []
    # As the multi finds it when it comes to an operation.
    present = {"/": True, **(yield from _siblings_present(operations, chroot))}
    for index, operation in enumerate(operations):
        if isinstance(operation, Create):
            if operation.make_parents:
                for path in (yield from _missing_parents(operation.path, present, chroot)):
                    expanded.append(Expanded(Create(path), index, asked=False))
                    present[path] = True
            if not operation.sequence:
                present[operation.path] = True
        elif isinstance(operation, Delete):
            present[operation.path] = False
        expanded.append(Expanded(operation, index, asked=True))
    return expanded


def _siblings_present(operations: Sequence[Operation], chroot: Chroot) -> Steps[dict[str, bool]]:
    """Whether parents are there, where many of them have one parent: one request for all.

    The partitions of a new topic are such.
    """
    families: dict[str, set[str]] = {}
    for operation in operations:
        if isinstance(operation, Create) and operation.make_parents:
            parent = parent_of(operation.path)
            families.setdefault(parent_of(parent), set()).add(parent)
    present: dict[str, bool] = {}
    for above, parents in families.items():
        if len(parents) < SIBLINGS_MIN:
            continue
        try:
            names = set((yield GetChildren(chroot.full(above))))
        except NoNode:
            names = set()
        present.update((parent, parent.rpartition("/")[2] in names) for parent in parents)
    return present


def _missing_parents(path: str, present: dict[str, bool], chroot: Chroot) -> Steps[list[str]]:
    """From the top down."""
    missing: list[str] = []
    parent = parent_of(path)
    while True:
        if parent not in present:
            present[parent] = (yield Exists(chroot.full(parent))) is not None
        if present[parent]:
            return missing[::-1]
        missing.append(parent)
        parent = parent_of(parent)


class _Footprint:
    """What the operations of one multi leave of one node."""

    __slots__ = ("created", "data", "deleted", "ephemeral", "set_count", "version_before")

    def __init__(self) -> None:
        self.created = False
        self.ephemeral = False
        self.deleted = False
        self.data: bytes | None = None  # None: neither made nor set
        self.set_count = 0
        self.version_before = ANY_VERSION

    def add(self, operation: Operation) -> None:
        if isinstance(operation, Create):
            self.created, self.deleted = True, False
            self.ephemeral = operation.ephemeral
            self.data = operation.data
            self.set_count = 0
        elif isinstance(operation, SetData):
            if self.set_count == 0 and not self.created:
                self.version_before = operation.version
            self.set_count += 1
            self.data = operation.data
        elif isinstance(operation, Delete):
            self.deleted = True
            self.created = False
            self.data = None

    def zxid_or_none(self, data: bytes, stat: Stat, session_id: int) -> int | None:
        """Of the write, if the node is as it leaves it."""
        if data != self.data:
            return None
        if self.created:
            owner = session_id if self.ephemeral else 0
            matches = stat.ephemeral_owner == owner and stat.version == self.set_count
            return stat.czxid if matches else None
        known = self.version_before != ANY_VERSION
        if known and stat.version != self.version_before + self.set_count:
            return None
        return stat.mzxid


def find_write(
    operations: Sequence[Operation], chroot: Chroot, lost: LostAnswer
) -> Steps[list[Outcome] | None]:
    """Its outcomes if it has happened; None if it has not, or nothing shows it any more."""
    yield Sync(chroot.full("/"))
    footprints: dict[str, _Footprint] = {}
    for operation in operations:
        if not (isinstance(operation, Create) and operation.sequence):
            footprints.setdefault(operation.path, _Footprint()).add(operation)
    zxids: set[int] = set()
    versions: dict[str, int] = {}
    for path, footprint in footprints.items():
        node = yield from _node_or_none(path, chroot)
        if footprint.data is not None:
            if node is None:
                return None
            zxid = footprint.zxid_or_none(*node, lost.session_id)
            if zxid is None or zxid <= lost.zxid_before:
                return None
            zxids.add(zxid)
            versions[path] = node[1].version - footprint.set_count
        elif footprint.deleted and node is not None:
            return None
    if len(zxids) > 1:
        return None
    names = yield from _sequence_names(operations, chroot, lost, zxids)
    if names is None or not (zxids or any(each.deleted for each in footprints.values())):
        return None
    return [_outcome(operation, names, versions) for operation in operations]


def _outcome(
    operation: Operation, names: dict[str, list[str]], versions: dict[str, int]
) -> Outcome:
    if isinstance(operation, Create):
        return names[operation.path].pop(0) if operation.sequence else operation.path
    if isinstance(operation, SetData):
        versions[operation.path] = versions.get(operation.path, 0) + 1
        return versions[operation.path]
    return None


def _sequence_names(
    operations: Sequence[Operation], chroot: Chroot, lost: LostAnswer, zxids: set[int]
) -> Steps[dict[str, list[str]] | None]:
    """Of the sequence nodes that the write made, by the path asked for, in their order.

    zxids holds the write's own, if another node has shown it.
    """
    wanted: dict[str, list[Create]] = {}
    for operation in operations:
        if isinstance(operation, Create) and operation.sequence:
            wanted.setdefault(operation.path, []).append(operation)
    names: dict[str, list[str]] = {}
    for path, creates in wanted.items():
        made = yield from _made_in_sequence(path, chroot, lost)
        of_one_zxid: dict[int, list[tuple[str, bytes, int]]] = {}
        for name, data, owner, zxid in made:
            of_one_zxid.setdefault(zxid, []).append((name, data, owner))
        expected = [(each.data, lost.session_id if each.ephemeral else 0) for each in creates]
        for zxid, nodes in of_one_zxid.items():
            if [(data, owner) for _, data, owner in nodes] == expected and (
                not zxids or zxid in zxids
            ):
                names[path] = [name for name, _, _ in nodes]
                zxids.add(zxid)
                break
        else:
            return None
    return names


def _made_in_sequence(
    path: str, chroot: Chroot, lost: LostAnswer
) -> Steps[list[tuple[str, bytes, int, int]]]:
    """Nodes of this name newer than the write, oldest first: path, data, owner, zxid."""
    parent, _, prefix = path.rpartition("/")
    try:
        children = yield GetChildren(chroot.full(parent or "/"))
    except NoNode:
        return []
    numbered = sorted(
        (child for child in children if _is_numbered(child, prefix)),
        key=lambda child: int(child[len(prefix) :]),
        reverse=True,
    )
    made = []
    for child in numbered:
        node = yield from _node_or_none(f"{parent}/{child}", chroot)
        if node is None:
            continue
        data, stat = node
        if stat.czxid <= lost.zxid_before:
            break
        made.append((f"{parent}/{child}", data, stat.ephemeral_owner, stat.czxid))
    return made[::-1]


def _is_numbered(child: str, prefix: str) -> bool:
    number = child.removeprefix(prefix) if child.startswith(prefix) else ""
    return len(number) >= SEQUENCE_DIGITS and number.isdecimal()


def _node_or_none(path: str, chroot: Chroot) -> Steps[tuple[bytes, Stat] | None]:
    try:
        node: tuple[bytes, Stat] = yield GetData(chroot.full(path))
    except NoNode:
        return None
    return node
