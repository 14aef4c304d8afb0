"""ZooKeeper's rules once more, as plainly as possible: what a store is compared with."""

from __future__ import annotations

import copy
from collections.abc import Sequence

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
    StoreError,
)


class ModelNode:
    def __init__(self, data: bytes = b"", ephemeral: bool = False) -> None:
        self.data = data
        self.ephemeral = ephemeral
        self.version = 0
        self.created = 0  # children ever
        self.kept = 0  # the same when the last persistent child was made


class NodeModel:
    def __init__(self) -> None:
        self._nodes = {"": ModelNode()}  # the root by its empty name

    def multi(
        self, operations: Sequence[Operation]
    ) -> list[Outcome] | tuple[type[StoreError], int]:
        before = copy.deepcopy(self._nodes)
        outcomes = []
        for index, operation in enumerate(operations):
            try:
                outcomes.append(self._perform(operation))
            except StoreError as error:
                self._nodes = before
                return type(error), index
        return outcomes

    def end_session(self, created: dict[str, int]) -> None:
        """A store may forget how many ephemeral children there were behind the last other one."""
        self._nodes = {p: node for p, node in self._nodes.items() if not node.ephemeral}
        for path, node in self._nodes.items():
            assert node.kept <= created[path or "/"] <= node.created
            node.created = created[path or "/"]

    def rows(self) -> dict[str, tuple[bytes, int, int, int]]:
        return {
            path or "/": (
                node.data,
                node.version,
                2 * node.created - self._child_count(path),
                self._child_count(path),
            )
            for path, node in self._nodes.items()
        }

    def _perform(self, operation: Operation) -> Outcome:
        if isinstance(operation, Create):
            return self._create(operation)
        path = operation.path
        if path.endswith("/"):
            raise BadArguments(path)
        if path not in self._nodes:
            raise NoNode(path)
        node = self._nodes[path]
        if operation.version not in (-1, node.version):
            raise BadVersion(path)
        if isinstance(operation, SetData):
            node.data = operation.data
            node.version += 1
            return node.version
        if isinstance(operation, Delete):
            if self._child_count(path):
                raise NotEmpty(path)
            del self._nodes[path]
        return None

    def _create(self, operation: Create) -> str:
        path = operation.path
        if path.endswith("/") and not operation.sequence:
            raise BadArguments(path)
        parent = path.rpartition("/")[0]
        if parent not in self._nodes:
            if not operation.make_parents:
                raise NoNode(path)
            self._create(Create(parent, make_parents=True))
        if self._nodes[parent].ephemeral:
            raise NoChildrenForEphemerals(path)
        if operation.sequence:
            path += f"{self._nodes[parent].created:010d}"
        if path in self._nodes:
            raise NodeExists(path)
        self._nodes[parent].created += 1
        if not operation.ephemeral:
            self._nodes[parent].kept = self._nodes[parent].created
        self._nodes[path] = ModelNode(operation.data, operation.ephemeral)
        return path

    def _child_count(self, path: str) -> int:
        return sum(other.rpartition("/")[0] == path for other in self._nodes if other)
