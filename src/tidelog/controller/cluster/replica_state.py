"""The states of a replica in the eyes of the controller, and how it may move between them.

NON_EXISTENT          never made, or deleted
NEW                   made for a new partition or by a reassignment: can only follow
ONLINE                started on a broker that is there
OFFLINE               its broker is gone, or the replica is not wanted any more
DELETION_STARTED      its broker has been told to delete it
DELETION_SUCCESSFUL   its broker has deleted it
DELETION_INELIGIBLE   cannot be deleted now: its broker is gone, or failed to
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class ReplicaState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()


_SETTLED: Final = frozenset(
    {
        ReplicaState.NEW,
        ReplicaState.ONLINE,
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_INELIGIBLE,
    }
)

ALLOWED_FROM: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: _SETTLED,
    ReplicaState.OFFLINE: _SETTLED,
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}
