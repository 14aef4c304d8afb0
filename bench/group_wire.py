"""Requests of consumer groups packed by hand, as `wire` does for records.

Versions are those both peers speak: FindCoordinator 1, OffsetCommit 5 (4 where the commit names its
retention), OffsetFetch 5; none of them is flexible. Commits are those of a consumer that assigns
itself: generation -1, no member.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from bench.raw_client import RawClient
from bench.wire import BadAnswer, frame, string

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
GIVE_UP_S = 60.0
RETRY_S = 0.02


def find_coordinator_request(group_id: str) -> bytes:
    body = string(group_id) + b"\0"
    return frame(FIND_COORDINATOR, 1, body, flexible=False, correlation_id=1)


def wait_for_coordinator(client: RawClient, group_id: str, topic: str) -> None:
    """Makes the topic of the offsets, if need be, and waits until a commit is taken."""
    give_up_at = time.monotonic() + GIVE_UP_S
    commit = offset_commit_request(group_id, topic, [0])
    while True:
        (error,) = struct.unpack_from(">h", client.ask(find_coordinator_request(group_id)), 12)
        if not error and not any(commit_errors(client.ask(commit))):
            return
        if time.monotonic() > give_up_at:
            raise BadAnswer(f"group {group_id} has no coordinator: error code {error}")
        time.sleep(RETRY_S)


def offset_commit_request(group_id: str, topic: str, offsets: Sequence[int]) -> bytes:
    """Of the topic's partitions from 0 on."""
    body = string(group_id) + struct.pack(">i", -1) + string("") + _committed(topic, offsets)
    return frame(OFFSET_COMMIT, 5, body, flexible=False, correlation_id=1)


def expiring_commit_request(
    group_id: str, topic: str, offsets: Sequence[int], *, retention_ms: int
) -> bytes:
    body = string(group_id) + struct.pack(">i", -1) + string("") + struct.pack(">q", retention_ms)
    body += _committed(topic, offsets)
    return frame(OFFSET_COMMIT, 4, body, flexible=False, correlation_id=1)


def _committed(topic: str, offsets: Sequence[int]) -> bytes:
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">i", len(offsets))
    for partition, offset in enumerate(offsets):
        body += struct.pack(">iq", partition, offset) + string("")
    return body


def commit_errors(answer: bytes) -> list[int]:
    """Of each partition of the one topic."""
    (name_bytes,) = struct.unpack_from(">h", answer, 16)
    position = 18 + name_bytes
    (count,) = struct.unpack_from(">i", answer, position)
    return [struct.unpack_from(">ih", answer, position + 4 + 6 * row)[1] for row in range(count)]


def offset_fetch_request(group_id: str, topic: str, partitions: int) -> bytes:
    body = string(group_id) + struct.pack(">i", 1) + string(topic)
    body += struct.pack(f">i{partitions}i", partitions, *range(partitions))
    return frame(OFFSET_FETCH, 5, body, flexible=False, correlation_id=1)


def fetched_offsets(answer: bytes) -> list[int]:
    """Of the one topic, by partition (Kafka answers in an order of its own); of a group that cannot
    answer yet: none.
    """
    (topics,) = struct.unpack_from(">i", answer, 12)
    if not topics:
        return []
    offsets = {}
    (name_bytes,) = struct.unpack_from(">h", answer, 16)
    position = 18 + name_bytes
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(count):
        partition, offset, _, metadata_bytes = struct.unpack_from(">iqih", answer, position)
        position += 18 + max(metadata_bytes, 0)
        (error,) = struct.unpack_from(">h", answer, position)
        position += 2
        if not error:
            offsets[partition] = offset
    return [offset for _, offset in sorted(offsets.items())]
