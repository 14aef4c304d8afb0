"""Which broker coordinates a group or a transactional id (FindCoordinator).

A coordinator moves with the leadership of a partition. What was found is kept until somebody
forgets it, because the broker turned out not to be the coordinator or cannot be reached.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import ClientError, UnreadableAnswer, UnsupportedByBroker, refused
from tidelog.client.network.metadata import Node
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

SEVERAL_KEYS_VERSION: Final = 4
KINDS_VERSION: Final = 1

# The broker that gives one of these errors is not the coordinator, or not any more.
COORDINATOR_MOVED: Final = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
)


class CoordinatorKind(IntEnum):
    """The numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def text(self) -> str:
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


class FoundCoordinator(NamedTuple):
    """`problem` is set where none was found."""

    node: Node
    problem: ClientError | None


def lookup_request(
    kind: CoordinatorKind, keys: Iterable[str], version: int
) -> FindCoordinatorRequest:
    """A request for these keys. Before version 4 it has room for one key."""
    keys = list(keys)
    if version >= SEVERAL_KEYS_VERSION:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
    (key,) = keys
    if version < KINDS_VERSION and kind is not CoordinatorKind.GROUP:
        raise UnsupportedByBroker(f"the broker has no coordinator for {kind.text} {key}")
    return FindCoordinatorRequest(key_type=kind, key=key)


def found_coordinators(
    kind: CoordinatorKind, keys: Iterable[str], response: FindCoordinatorResponse
) -> dict[str, FoundCoordinator]:
    """By key, for each that was asked for."""
    keys = list(keys)
    rows = {row.key: row for row in response.coordinators}
    found: dict[str, FoundCoordinator] = {}
    for key in keys:
        row = rows.get(key, None if rows else response)
        what = f"coordinator of {kind.text} {key}"
        if row is None:
            problem: ClientError | None = UnreadableAnswer(f"{what}: the broker left it out")
            found[key] = FoundCoordinator(Node(-1, "", -1), problem)
            continue
        problem = None
        if row.error_code != ErrorCode.NONE:
            problem = refused(what, row.error_code, row.error_message or None)
        found[key] = FoundCoordinator(Node(row.node_id, row.host, row.port), problem)
    return found
