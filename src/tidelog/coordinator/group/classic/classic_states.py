"""The states of a classic group, and which may follow which.

    EMPTY                 no members; offsets may be there. JoinGroup begins a rebalance, simple
                          commits (generation -1) succeed, SyncGroup and Heartbeat: unknown member.
    PREPARING_REBALANCE   waits for members to (re)join. JoinGroup waits, Heartbeat and SyncGroup:
                          rebalance in progress, commits of members succeed.
    COMPLETING_REBALANCE  a new generation waits for its leader's assignment. SyncGroup waits,
                          Heartbeat succeeds, commits: rebalance in progress.
    STABLE                every member has its assignment.
    DEAD                  deleted, or looked after elsewhere: nothing may happen to it any more.

Only STABLE and EMPTY are in the log; a restart finds a group in the last of them that was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """The values are the names that clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


ALLOWED_FROM: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
