"""Offsets that are to be committed, as the group coordinator takes them."""

from __future__ import annotations

from tidelog.coordinator.group.offsets import NO_EXPIRY, NewOffset


def new_offset(
    topic: str,
    partition: int,
    offset: int,
    leader_epoch: int = -1,
    metadata: str = "",
    commit_timestamp_ms: int = 0,
    expire_timestamp_ms: int = NO_EXPIRY,
) -> NewOffset:
    return (
        topic,
        partition,
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
    )
