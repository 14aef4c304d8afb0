"""How far groups are behind: what they have committed, where the logs end, who has the partitions.

The client's errors pass through, but for the end of a partition that nobody knows: its lag is None.
Asking about many groups at once costs one request for each group, and one to each leader for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import ClientError
from tidelog.protocol.listed_timestamps import LATEST
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.async_admin import AsyncAdmin
    from tidelog.client.admin.groups import GroupDescription, GroupMember

ASKED_AT_ONCE: Final = 16


class PartitionLag(NamedTuple):
    partition: TopicPartition
    committed: int | None
    log_end_offset: int | None
    owner: GroupMember | None

    @property
    def lag(self) -> int | None:
        """Negative where the log was cut below what is committed."""
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed


def total_lag(rows: Iterable[PartitionLag]) -> int:
    return sum(max(row.lag or 0, 0) for row in rows)


async def committed_offsets(
    admin: AsyncAdmin, group_id: str, timeout_s: float | None = None
) -> dict[TopicPartition, int]:
    found = await admin.list_group_offsets(group_id, timeout=timeout_s)
    return {each: row.offset for each, row in found.items() if row is not None}


async def partition_lags(
    admin: AsyncAdmin, group: GroupDescription, timeout_s: float | None = None
) -> list[PartitionLag]:
    """Of every partition that the group has committed for, or that a member has."""
    found = (await lags_of_groups(admin, [group], timeout_s))[group.group_id]
    if isinstance(found, ClientError):
        raise found
    return found


async def lags_of_groups(
    admin: AsyncAdmin, groups: Sequence[GroupDescription], timeout_s: float | None = None
) -> dict[str, list[PartitionLag] | ClientError]:
    """A group that cannot be asked about has its error in place of rows. The time is that of each
    call; a partition that nobody leads takes all of it."""
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def committed(group_id: str) -> dict[TopicPartition, int] | ClientError:
        async with turns:
            try:
                return await committed_offsets(admin, group_id, timeout_s)
            except ClientError as problem:
                return problem

    answers = await asyncio.gather(*(committed(group.group_id) for group in groups))
    wanted = {place for answer in answers if isinstance(answer, dict) for place in answer}
    wanted |= {place for group in groups for member in group.members for place in member.assignment}
    ends = await log_end_offsets(admin, wanted, timeout_s)
    return {
        group.group_id: answer
        if isinstance(answer, ClientError)
        else rows_of(group.members, answer, ends)
        for group, answer in zip(groups, answers, strict=True)
    }


async def log_end_offsets(
    admin: AsyncAdmin, partitions: Iterable[TopicPartition], timeout_s: float | None = None
) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(sorted(partitions), LATEST)
    found = await admin.list_offsets(wanted, timeout=timeout_s)
    return {
        partition: result.get().offset
        for partition, result in found.items()
        if result.error is None
    }


def rows_of(
    members: Iterable[GroupMember],
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionLag]:
    owners = {partition: member for member in members for partition in member.assignment}
    return [
        PartitionLag(each, committed.get(each), ends.get(each), owners.get(each))
        for each in sorted(committed.keys() | owners.keys())
    ]
