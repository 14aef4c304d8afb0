"""The states of a consumer group and of its members (KIP-848).

A group's state is not stored; it is what its epochs and members say:

    EMPTY        no members
    ASSIGNING    the group epoch is ahead of the target assignment: the next heartbeat computes it
    RECONCILING  some member has not reached the target assignment
    STABLE       every member has
    DEAD         deleted, converted, or looked after elsewhere

A member's state is in the log:

    STABLE                 it has all of its target assignment
    UNREVOKED_PARTITIONS   it must give up partitions, and keeps its epoch until it says it has
    UNRELEASED_PARTITIONS  it is in the target's epoch, but others still hold some of its partitions
    UNKNOWN                a state that only a newer Kafka knows: the member must start afresh

Every heartbeat may move a member to any of them but the last; `reconciliation` has the table.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class ConsumerGroupState(Enum):
    """The values are the names that clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The numbers are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN
