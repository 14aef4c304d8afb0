"""Checks operations against what the tree will be once all writes under way are durable.

The tree shows only durable state, but a write must be judged by everything accepted before it.
`OutstandingChanges` keeps an `Expected` for each node that an unfinished transaction touches, as
ZooKeeper does, and drops it when the last such transaction has been applied. If writes are lost,
all of them are forgotten together: a later one may rest on an earlier one.

Some operations are for a store that keeps sessions (`tidelog zookeeper`). Those on sessions cannot
be refused. Such a store keeps access lists too, and says who asks: the permission that ZooKeeper's
PrepRequestProcessor asks for is asked for here, before any other rule. Without identities, as the
store itself and a broker write, everything is permitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tidelog.controller.access_lists import (
    AccessList,
    Identity,
    NoAuth,
    Permission,
    permits,
)
from tidelog.controller.metadata_store import (
    ANY_VERSION,
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Outcome,
    SetData,
    StoreError,
    parent_of,
    require_valid_path,
)
from tidelog.controller.node_tree import Change, ChangeKind, NodeTree, Transaction


class OpenSession(NamedTuple):
    session_id: int
    timeout_ms: int
    password: bytes


class CloseSession(NamedTuple):
    """Its ephemeral nodes stay until they are dropped."""

    session_id: int


class DropEphemeral(NamedTuple):
    """Deletes the node if it is there and still that session's."""

    path: str
    session_id: int


class CreateGuarded(NamedTuple):
    """A Create that gives the node an access list."""

    create: Create
    access: AccessList

    @property
    def path(self) -> str:
        return self.create.path


class SetAccess(NamedTuple):
    """None is open to all. Its outcome is the new version of the list."""

    path: str
    access: AccessList | None
    version: int = ANY_VERSION


class Refused(NamedTuple):
    """Fails with the error that was found before the store was asked. It takes its turn, so that
    an operation before it may be the one that fails, and writes before it are answered before it.
    """

    error: StoreError


SessionOperation = OpenSession | CloseSession | DropEphemeral
ServerOperation = SessionOperation | CreateGuarded | SetAccess | Refused


class Expected:
    """What a node will be; `exists` is false for one that will be gone."""

    __slots__ = (
        "access",
        "aversion",
        "child_count",
        "created_children",
        "ephemeral_owner",
        "exists",
        "version",
        "zxid",
    )

    def __init__(self) -> None:
        self.exists = False
        self.version = 0
        self.ephemeral_owner = 0
        self.created_children = 0
        self.child_count = 0
        self.access: AccessList | None = None
        self.aversion = 0
        self.zxid = 0  # of the last transaction that touches it

    def copy(self) -> Expected:
        made = Expected()
        made.exists = self.exists
        made.version = self.version
        made.ephemeral_owner = self.ephemeral_owner
        made.created_children = self.created_children
        made.child_count = self.child_count
        made.access = self.access
        made.aversion = self.aversion
        return made


class OutstandingChanges:
    def __init__(self, tree: NodeTree) -> None:
        self._tree = tree
        self._expected: dict[str, Expected] = {}
        self.zxid = tree.zxid  # of the last transaction accepted
        self.losses = 0  # how often writes were lost; a multi from before rests on them

    def stage(
        self,
        operations: Sequence[Operation | ServerOperation],
        session_id: int,
        time_ms: int,
        identities: Collection[Identity] | None = None,
    ) -> tuple[Transaction, list[Outcome]]:
        """Accepts all the operations, or raises the first one's error and remembers nothing."""
        multi = self.begin(session_id, identities)
        for operation in operations:
            multi.perform(operation)
        return self.accept(multi, time_ms), multi.outcomes

    def begin(self, session_id: int, identities: Collection[Identity] | None = None) -> Multi:
        """A multi that is checked bit by bit. None may be accepted before it but those that have
        been already; transactions may be applied meanwhile.
        """
        return Multi(self._tree, self._expected, session_id, identities)

    def accept(self, multi: Multi, time_ms: int) -> Transaction:
        self.zxid += 1
        for path, expected in multi.changed.items():
            expected.zxid = self.zxid
            self._expected[path] = expected
        return Transaction(self.zxid, time_ms, multi.changes)

    def applied(self, transaction: Transaction) -> None:
        for _ in self.applied_bit_by_bit(transaction):
            pass

    def applied_bit_by_bit(self, transaction: Transaction) -> Iterator[None]:
        """Until all is done, what is expected of a node is what the tree has."""
        for change in transaction.changes:
            self._forget(change.path, transaction.zxid)
            self._forget(parent_of(change.path), transaction.zxid)
            yield

    def forget_all(self) -> None:
        self._expected.clear()
        self.losses += 1

    def _forget(self, path: str, zxid: int) -> None:
        expected = self._expected.get(path)
        if expected is not None and expected.zxid == zxid:
            del self._expected[path]


class Multi:
    """One multi while it is being checked."""

    def __init__(
        self,
        tree: NodeTree,
        outer: dict[str, Expected],
        session_id: int,
        identities: Collection[Identity] | None,
    ) -> None:
        self._tree = tree
        self._outer = outer
        self._session_id = session_id
        self._identities = identities  # None may do everything
        self._touched: dict[str, Expected] = {}
        self.changed: dict[str, Expected] = {}  # those touched that the multi changes
        self.changes: list[Change] = []
        self.outcomes: list[Outcome] = []

    def perform(self, operation: Operation | ServerOperation) -> None:
        try:
            self.outcomes.append(self._perform(operation))
        except StoreError as error:
            error.index = len(self.outcomes)
            raise

    def _perform(self, operation: Operation | ServerOperation) -> Outcome:
        if isinstance(operation, SetData):
            return self._set(operation)
        if isinstance(operation, Create):
            return self._create(operation)
        if isinstance(operation, Delete):
            self._delete(operation)
        elif isinstance(operation, Check):
            require_valid_path(operation.path)
            self._existing(operation.path, operation.version, Permission.READ)
        elif isinstance(operation, CreateGuarded):
            return self._create(operation.create, operation.access)
        elif isinstance(operation, SetAccess):
            return self._set_access(operation)
        elif isinstance(operation, Refused):
            raise operation.error
        elif isinstance(operation, DropEphemeral):
            node = self.expect(operation.path)
            if node.exists and node.ephemeral_owner == operation.session_id:
                self._delete(Delete(operation.path))
        elif isinstance(operation, OpenSession):
            data = operation.timeout_ms.to_bytes(4, "big") + operation.password
            self._change_session(ChangeKind.SESSION_OPENED, operation.session_id, data)
        else:
            self._change_session(ChangeKind.SESSION_CLOSED, operation.session_id, b"")
        return None

    def _change_session(self, kind: ChangeKind, session_id: int, data: bytes) -> None:
        self.changes.append(Change(kind, str(session_id), data, 0, 0))

    def _require(self, node: Expected, permission: Permission, path: str) -> None:
        if node.access is None or self._identities is None:
            return
        if not permits(node.access, permission, self._identities):
            raise NoAuth(path)

    def _create(self, operation: Create, access: AccessList | None = None) -> str:
        path = operation.path
        require_valid_path(path + "0" if operation.sequence else path)
        if path == "/":
            raise NodeExists(path)
        parent_path = parent_of(path)
        parent = self.expect(parent_path)
        if not parent.exists:
            if not operation.make_parents:
                raise NoNode(parent_path)
            self._create(Create(parent_path, make_parents=True))
        self._require(parent, Permission.CREATE, path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemerals(path)
        if operation.sequence:
            path = f"{path}{parent.created_children:010d}"
        node = self.expect(path)
        if node.exists:
            raise NodeExists(path)
        node.exists = True
        node.version = 0
        node.ephemeral_owner = self._session_id if operation.ephemeral else 0
        node.created_children = 0
        node.access = access
        node.aversion = 0
        parent.child_count += 1
        parent.created_children += 1
        self.changed[path], self.changed[parent_path] = node, parent
        self.changes.append(
            Change(
                ChangeKind.CREATED,
                path,
                operation.data,
                node.ephemeral_owner,
                parent.created_children,
            )
        )
        if access is not None:
            self._change_access(ChangeKind.ACCESS_GIVEN, path, node)
        return path

    def _set(self, operation: SetData) -> int:
        path = operation.path
        require_valid_path(path)
        node = self._existing(path, operation.version, Permission.WRITE)
        node.version += 1
        self.changed[path] = node
        self.changes.append(Change(ChangeKind.SET, path, operation.data, node.ephemeral_owner, 0))
        return node.version

    def _set_access(self, operation: SetAccess) -> int:
        path = operation.path
        require_valid_path(path)
        node = self.expect(path)
        if not node.exists:
            raise NoNode(path)
        self._require(node, Permission.ADMIN, path)
        if operation.version not in (ANY_VERSION, node.aversion):
            raise BadVersion(path)
        node.access = operation.access
        node.aversion += 1
        self.changed[path] = node
        self._change_access(ChangeKind.ACCESS_SET, path, node)
        return node.aversion

    def _change_access(self, kind: ChangeKind, path: str, node: Expected) -> None:
        data = node.access.encoded if node.access is not None else b""
        self.changes.append(Change(kind, path, data, node.ephemeral_owner, 0))

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        require_valid_path(path)
        if path == "/":
            raise BadArguments(path)
        parent_path = parent_of(path)
        parent = self.expect(parent_path)
        self._require(parent, Permission.DELETE, path)
        node = self._existing(path, operation.version)
        if node.child_count:
            raise NotEmpty(path)
        node.exists = False
        parent.child_count -= 1
        self.changed[path], self.changed[parent_path] = node, parent
        self.changes.append(Change(ChangeKind.DELETED, path, b"", node.ephemeral_owner, 0))

    def _existing(self, path: str, version: int, needed: Permission | None = None) -> Expected:
        node = self.expect(path)
        if not node.exists:
            raise NoNode(path)
        if needed is not None:
            self._require(node, needed, path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def expect(self, path: str) -> Expected:
        expected = self._touched.get(path)
        if expected is None:
            expected = self._touched[path] = self._expected_before(path)
        return expected

    def _expected_before(self, path: str) -> Expected:
        outer = self._outer.get(path)
        if outer is not None:
            return outer.copy()
        expected = Expected()
        node = self._tree.nodes.get(path)
        if node is not None:
            expected.exists = True
            expected.version = node.version
            expected.ephemeral_owner = node.ephemeral_owner
            expected.created_children = node.created_children
            expected.child_count = len(node.children) if node.children else 0
            expected.access = node.access
            expected.aversion = node.aversion
        return expected
