"""Requests of consumer groups packed by hand, as `wire` does for records.

Versions are those both peers speak: FindCoordinator 1, OffsetCommit 5 (4 where the commit names its
retention), OffsetFetch 5, JoinGroup 4, SyncGroup 2, Heartbeat 2; none of them is flexible. Commits
are those of a consumer that assigns itself: generation -1, no member. Members are those of the
classic protocol: they ask for a member id first (KIP-394), then join with it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.raw_client import RawClient
from bench.wire import BadAnswer, frame, string

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
SESSION_MS = 1_800_000  # the most both peers allow: a member that only waits stays
REBALANCE_MS = 300_000
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


# Members


@dataclass(frozen=True, slots=True)
class Joined:
    """A JoinGroup answer; only the leader's lists the members."""

    error: int
    generation_id: int
    leader: str
    member_id: str
    members: Sequence[str]

    @property
    def leads(self) -> bool:
        return self.member_id == self.leader


def join_request(group_id: str, member_id: str, topic: str) -> bytes:
    subscription = struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)
    body = string(group_id) + struct.pack(">ii", SESSION_MS, REBALANCE_MS) + string(member_id)
    body += string("consumer") + struct.pack(">i", 1) + string("range") + _bytes(subscription)
    return frame(JOIN_GROUP, 4, body, flexible=False, correlation_id=1)


def joined(answer: bytes) -> Joined:
    error, generation_id = struct.unpack_from(">hi", answer, 12)
    position = 18
    names = []
    for _ in range(3):  # protocol, leader, member id
        name, position = _string_at(answer, position)
        names.append(name)
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    members = []
    for _ in range(count):
        member, position = _string_at(answer, position)
        (metadata_bytes,) = struct.unpack_from(">i", answer, position)
        position += 4 + metadata_bytes
        members.append(member)
    return Joined(error, generation_id, names[1], names[2], members)


def sync_request(
    group_id: str, generation_id: int, member_id: str, assignments: Mapping[str, bytes]
) -> bytes:
    body = string(group_id) + struct.pack(">i", generation_id) + string(member_id)
    body += struct.pack(">i", len(assignments))
    for assigned, assignment in assignments.items():
        body += string(assigned) + _bytes(assignment)
    return frame(SYNC_GROUP, 2, body, flexible=False, correlation_id=1)


def synced(answer: bytes) -> tuple[int, bytes]:
    """Error code and assignment."""
    error, length = struct.unpack_from(">hi", answer, 12)
    return error, bytes(answer[18 : 18 + max(length, 0)])


def assignment_of(topic: str, partition: int) -> bytes:
    return struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">iii", 1, partition, -1)


def heartbeat_request(group_id: str, generation_id: int, member_id: str) -> bytes:
    body = string(group_id) + struct.pack(">i", generation_id) + string(member_id)
    return frame(HEARTBEAT, 2, body, flexible=False, correlation_id=1)


def heartbeat_error(answer: bytes) -> int:
    (error,) = struct.unpack_from(">h", answer, 12)
    return int(error)


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _string_at(answer: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", answer, position)
    end = position + 2 + max(int(length), 0)
    return answer[position + 2 : end].decode(), end
