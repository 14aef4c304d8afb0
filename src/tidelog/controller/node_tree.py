"""The nodes in memory: what is durable, nothing else.

`NodeTree` applies changes that were checked before; applying cannot fail. A change says what
happened and not what was asked for, so replaying a journal needs no rules.

`children` of a node is None until it has one: most nodes never do. `created_children` counts the
children ever made and numbers sequence nodes; it travels with each created child, since ephemeral
siblings count but are not kept across a restart.

`access` is None for a node that is open to all (`access_lists.py`), as all nodes of a broker are.

The tree also has the sessions of a store that keeps them (`journal.py`). An ephemeral node whose
owner is not among them, or no longer, is about to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.controller.access_lists import AccessList, decode_access_list
from tidelog.controller.metadata_store import NoNode, Stat, parent_of


class ChangeKind(IntEnum):
    CREATED = 1
    SET = 2
    DELETED = 3
    SESSION_OPENED = 4  # the path is the id, the data its timeout and its password
    SESSION_CLOSED = 5
    # The data is the access list, encoded. 6 is taken in the journal.
    ACCESS_GIVEN = 7  # to a node that the same transaction has made
    ACCESS_SET = 8


class KeptSession(NamedTuple):
    timeout_ms: int
    password: bytes


class Change(NamedTuple):
    kind: ChangeKind
    path: str
    data: bytes
    ephemeral_owner: int  # of the node, whatever the kind: 0 if it is persistent
    created_children: int  # of the parent, after a creation


class Transaction(NamedTuple):
    zxid: int
    time_ms: int
    changes: list[Change]


# Of the nodes that a transaction has deleted, where they were not open to all.
DeletedAccess = dict[str, AccessList]


class Node:
    __slots__ = (
        "access",
        "aversion",
        "children",
        "created_children",
        "ctime_ms",
        "czxid",
        "data",
        "ephemeral_owner",
        "mtime_ms",
        "mzxid",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, zxid: int, time_ms: int, ephemeral_owner: int) -> None:
        self.data = data
        self.version = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = time_ms
        self.ephemeral_owner = ephemeral_owner
        self.created_children = 0
        self.children: dict[str, None] | None = None
        self.access: AccessList | None = None
        self.aversion = 0

    def stat(self) -> Stat:
        count = len(self.children) if self.children else 0
        return Stat(
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            2 * self.created_children - count,
            self.ephemeral_owner,
            len(self.data),
            count,
            self.aversion,
        )


class NodeTree:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)}
        self.zxid = 0  # of the last transaction applied
        self.ephemerals: dict[int, dict[str, None]] = {}  # paths by owner; none is empty
        self.sessions: dict[int, KeptSession] = {}

    def node(self, path: str) -> Node:
        found = self.nodes.get(path)
        if found is None:
            raise NoNode(path)
        return found

    def apply(self, transaction: Transaction) -> DeletedAccess:
        zxid = self._next(transaction)
        deleted: DeletedAccess = {}
        self._apply(transaction, deleted)
        self.zxid = zxid
        return deleted

    def apply_in_pieces(
        self, pieces: Sequence[Transaction], deleted: DeletedAccess
    ) -> Iterator[None]:
        """One transaction, cut up. Nobody may read between the steps. Adds to `deleted`."""
        zxid = self._next(pieces[0])
        for piece in pieces:
            self._apply(piece, deleted)
            yield
        self.zxid = zxid

    def _next(self, transaction: Transaction) -> int:
        zxid = transaction.zxid
        assert zxid > self.zxid, (zxid, self.zxid)
        return zxid

    def _apply(self, transaction: Transaction, deleted: DeletedAccess) -> None:
        zxid, time_ms, changes = transaction
        nodes = self.nodes
        for kind, path, data, owner, created_children in changes:
            if kind == ChangeKind.SET:
                node = nodes[path]
                node.data = data
                node.version += 1
                node.mzxid = zxid
                node.mtime_ms = time_ms
                continue
            if kind >= ChangeKind.SESSION_OPENED:
                if kind >= ChangeKind.ACCESS_GIVEN:
                    self._apply_to_access(kind, nodes[path], data)
                else:
                    self._apply_to_sessions(kind, int(path), data)
                continue
            parent_path, _, name = path.rpartition("/")
            parent = nodes[parent_path or "/"]
            parent.pzxid = zxid
            if kind == ChangeKind.CREATED:
                nodes[path] = Node(data, zxid, time_ms, owner)
                if parent.children is None:
                    parent.children = {}
                parent.children[name] = None
                parent.created_children = created_children
                if owner:
                    self.ephemerals.setdefault(owner, {})[path] = None
            else:
                node = nodes.pop(path)
                if node.ephemeral_owner:
                    self._forget_ephemeral(node.ephemeral_owner, path)
                if node.access is not None:
                    deleted[path] = node.access
                assert parent.children is not None
                del parent.children[name]

    def _apply_to_sessions(self, kind: ChangeKind, session_id: int, data: bytes) -> None:
        if kind == ChangeKind.SESSION_OPENED:
            self.sessions[session_id] = KeptSession(int.from_bytes(data[:4], "big"), data[4:])
        else:
            self.sessions.pop(session_id, None)

    def _apply_to_access(self, kind: ChangeKind, node: Node, data: bytes) -> None:
        node.access = decode_access_list(data) if data else None
        if kind == ChangeKind.ACCESS_SET:
            node.aversion += 1

    def _forget_ephemeral(self, owner: int, path: str) -> None:
        paths = self.ephemerals[owner]
        del paths[path]
        if not paths:
            del self.ephemerals[owner]

    def restore(self, path: str, node: Node) -> None:
        """Puts a node of a snapshot back; the parent is there already and counts it already."""
        self.nodes[path] = node
        if node.ephemeral_owner:
            self.ephemerals.setdefault(node.ephemeral_owner, {})[path] = None
        if path != "/":
            parent = self.nodes[parent_of(path)]
            if parent.children is None:
                parent.children = {}
            parent.children[path[path.rindex("/") + 1 :]] = None

    def subtree(self, path: str) -> Iterator[tuple[str, Node]]:
        """Parents first, siblings by name."""
        nodes = self.nodes
        start = nodes.get(path)
        if start is None:
            return
        waiting: list[tuple[str, Node]] = [(path, start)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            if node.children:
                prefix = "" if path == "/" else path
                names = sorted(node.children, reverse=True)
                waiting += [(child, nodes[child]) for child in (f"{prefix}/{n}" for n in names)]

    def ephemerals_of(self, session_id: int) -> Iterable[str]:
        return list(self.ephemerals.get(session_id, ()))
