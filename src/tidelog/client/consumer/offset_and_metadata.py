"""The small values that go in and out of a consumer: committed offsets, found offsets, a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import IllegalState
from tidelog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.types import TopicPartition

NO_GENERATION_ID: Final = -1
NO_MEMBER_ID: Final = ""
OFFSET_MAX: Final = (1 << 63) - 1


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, the epoch of the last record read, free text."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """The first record that is as late as the timestamp asked for."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """What a transactional producer needs to commit offsets for a consumer (KIP-447)."""

    group_id: str
    generation_id: int = NO_GENERATION_ID
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


def require_committable(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Brokers take a negative offset, and who reads it takes it for no offset at all."""
    for partition, row in offsets.items():
        if not 0 <= row.offset <= OFFSET_MAX:
            raise IllegalState(f"partition {partition}: offset {row.offset} cannot be committed")


def known_epoch(leader_epoch: int) -> int | None:
    """An epoch as the public types have it: None where the wire says -1."""
    return None if leader_epoch == NO_LEADER_EPOCH else leader_epoch


def wire_epoch(leader_epoch: int | None) -> int:
    return NO_LEADER_EPOCH if leader_epoch is None else leader_epoch
