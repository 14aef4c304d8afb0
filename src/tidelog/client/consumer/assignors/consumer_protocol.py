"""Subscriptions and assignments as the members of a group write them: an int16 version, and then
ConsumerProtocolSubscription or ConsumerProtocolAssignment of that version.

Readers take a version above their own for their highest, because later versions only append fields.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.assignors.assignor import Assignment, Subscription
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_GENERATION: Final = -1

_VERSION = Struct(">h")


def encode_subscription(
    subscription: Subscription, version: int = ConsumerProtocolSubscription.MAX_VERSION
) -> bytes:
    """Fields that the version does not have are left out. The group instance id is no part of it:
    the JoinGroup request has it."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics), user_data=subscription.user_data
    )
    if version >= 1:
        message.owned_partitions = [
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(sorted(subscription.owned_partitions))
        ]
    if version >= 2 and subscription.generation is not None:
        message.generation_id = subscription.generation
    if version >= 3:
        message.rack_id = subscription.rack
    return _VERSION.pack(version) + message.encode(version)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """DecodeError for bytes that are no subscription."""
    view = memoryview(data)
    version = _version_of(view, ConsumerProtocolSubscription.MAX_VERSION)
    message = ConsumerProtocolSubscription.decode(view, _VERSION.size, version)
    return Subscription(
        message.topics,
        _bytes_or_none(message.user_data),
        [
            TopicPartition(row.topic, partition)
            for row in message.owned_partitions
            for partition in row.partitions
        ],
        message.generation_id if message.generation_id > NO_GENERATION else None,
        group_instance_id,
        message.rack_id or None,
    )


def encode_assignment(
    assignment: Assignment, version: int = ConsumerProtocolAssignment.MAX_VERSION
) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in _by_topic(assignment.partitions)
        ],
        user_data=assignment.user_data,
    )
    return _VERSION.pack(version) + message.encode(version)


def decode_assignment(data: bytes) -> Assignment:
    """DecodeError for bytes that are no assignment."""
    view = memoryview(data)
    version = _version_of(view, ConsumerProtocolAssignment.MAX_VERSION)
    message = ConsumerProtocolAssignment.decode(view, _VERSION.size, version)
    partitions = [
        TopicPartition(row.topic, partition)
        for row in message.assigned_partitions
        for partition in row.partitions
    ]
    return Assignment(partitions, _bytes_or_none(message.user_data))


def _version_of(view: memoryview, highest: int) -> int:
    if len(view) < _VERSION.size:
        raise DecodeError(f"{len(view)} bytes are too few for a version")
    (version,) = _VERSION.unpack_from(view)
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    return int(min(version, highest))


def _bytes_or_none(data: bytes | None) -> bytes | None:
    return None if data is None else bytes(data)


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    """Topics in the order in which they first appear, their partitions in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics.items()
