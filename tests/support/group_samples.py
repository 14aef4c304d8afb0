"""Harmless requests for the group and offset APIs, for `request_samples`.

None of them waits or makes a group: JoinGroup and the like come from a member nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest

MISSING_GROUP = "no-such-group"


def group_samples(topic: str) -> Iterator[tuple[Any, Callable[[int], dict[str, Any]]]]:
    known = {"group_id": MISSING_GROUP, "member_id": "nobody", "generation_id": 1}
    yield FindCoordinatorRequest, lambda version: _find(version)
    yield JoinGroupRequest, lambda version: _join()
    yield SyncGroupRequest, lambda version: known | _protocol(version) | {"assignments": []}
    yield HeartbeatRequest, lambda version: known
    yield LeaveGroupRequest, lambda version: _leave(version)
    yield OffsetCommitRequest, lambda version: _commit(topic, version)
    yield OffsetFetchRequest, lambda version: _fetch(topic, version)
    yield OffsetDeleteRequest, lambda version: _delete_offsets(topic)
    yield DescribeGroupsRequest, lambda version: {"groups": [MISSING_GROUP]}
    yield ListGroupsRequest, lambda version: {}
    yield DeleteGroupsRequest, lambda version: {"groups_names": [MISSING_GROUP]}


def _find(version: int) -> dict[str, Any]:
    if version >= 4:
        return {"key_type": 0, "coordinator_keys": [MISSING_GROUP]}
    return {"key": MISSING_GROUP}


def _protocol(version: int) -> dict[str, Any]:
    return {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}


def _join() -> dict[str, Any]:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return {
        "group_id": MISSING_GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "nobody",
        "protocol_type": "consumer",
        "protocols": [protocol],
    }


def _leave(version: int) -> dict[str, Any]:
    if version >= 3:
        leaving = LeaveGroupRequest.MemberIdentity(member_id="nobody")
        return {"group_id": MISSING_GROUP, "members": [leaving]}
    return {"group_id": MISSING_GROUP, "member_id": "nobody"}


def _commit(topic: str, version: int) -> dict[str, Any]:
    rows = OffsetCommitRequest.OffsetCommitRequestTopic
    row = rows.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    return {
        "group_id": MISSING_GROUP,
        "generation_id_or_member_epoch": 1 if version else -1,
        "member_id": "nobody" if version else "",
        "topics": [rows(name=topic, partitions=[row])],
    }


def _fetch(topic: str, version: int) -> dict[str, Any]:
    if version >= 8:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        rows = group.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        return {"groups": [group(group_id=MISSING_GROUP, topics=[rows])]}
    rows = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    return {"group_id": MISSING_GROUP, "topics": [rows]}


def _delete_offsets(topic: str) -> dict[str, Any]:
    rows = OffsetDeleteRequest.OffsetDeleteRequestTopic
    row = rows.OffsetDeleteRequestPartition(partition_index=0)
    return {"group_id": MISSING_GROUP, "topics": [rows(name=topic, partitions=[row])]}
