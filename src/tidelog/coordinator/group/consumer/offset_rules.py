"""Who may commit and fetch the offsets of a consumer group. Pure; refusals are KafkaErrors.

A group without members takes commits from anybody (epoch -1). A member must name its epoch; for a
partition that it has held since, an older one will do (KIP-1251): its commit was on the way when a
heartbeat raised the epoch, and nobody else can have committed in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidelog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
    from tidelog.coordinator.group.consumer.consumer_member import ConsumerGroupMember
    from tidelog.coordinator.group.consumer.topics import Topics

FIRST_VERSION_WITH_MEMBER_EPOCH: Final = 9  # of OffsetCommit


def require_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[tuple[str, int]],
    topics: Topics,
    *,
    version: int | None,
) -> None:
    """`version` is that of OffsetCommit; None for offsets of a transaction."""
    if epoch < 0 and not group.members:
        return
    member = group.must_find(member_id)
    if version is not None and member.classic is None and version < FIRST_VERSION_WITH_MEMBER_EPOCH:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group "
            "protocol",
        )
    if epoch == member.member_epoch:
        return
    if not 0 <= epoch < member.member_epoch or not all(
        _has_held_since(member, epoch, topics, *place) for place in partitions
    ):
        raise _stale(member, epoch)


def _has_held_since(
    member: ConsumerGroupMember, epoch: int, topics: Topics, topic: str, partition: int
) -> bool:
    image = topics.topics.get(topic)
    if image is None:
        return False
    for held in (member.assigned, member.revoking):
        given = held.get(image.topic_id, {}).get(partition)
        if given is not None:
            return given <= epoch
    return False


def require_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Whoever names no member may read."""
    if member_id is None and epoch < 0:
        return
    member = group.must_find(member_id or "")
    if epoch != member.member_epoch:
        raise _stale(member, epoch)


def _stale(member: ConsumerGroupMember, epoch: int) -> KafkaError:
    code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    return KafkaError(
        code,
        f"The received member epoch {epoch} does not match the expected member epoch "
        f"{member.member_epoch}.",
    )
