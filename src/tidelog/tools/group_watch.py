"""How groups do over a while, without thresholds: judged by their last looks, as Burrow does.

    OK       the lag was zero in one of the looks, or it shrank
    WARN     the group commits, and its lag has not shrunk once
    STALL    a member has the partition and commits nothing new, while records wait
    STOP     nobody has the partition, nothing is committed, and records wait
    REWIND   what is committed went back, and records wait
    ERR      of a group: one of its partitions is STALL, STOP or REWIND

A partition is judged once its looks span JUDGED_FROM_MS; before that it is UNKNOWN. Burrow reads
commits and tells STOP from STALL by their times. Offsets seen from outside have none, so the owner
of the partition tells them apart here.

`GroupWatch` keeps looks for as many groups as fit, the ones looked at last. A look that comes
sooner than LOOK_EVERY_MS after the one before is not kept, so many readers do not shorten the time
that the looks span.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tidelog.tools.group_lag import PartitionLag, total_lag
from tidelog.types import TopicPartition

LOOKS_MAX: Final = 10  # of a partition
LOOK_EVERY_MS: Final = 4_000
JUDGED_FROM_MS: Final = 12_000
LAGS_MAX: Final = 450  # of a group: half an hour of looks
GROUPS_MAX: Final = 200
PARTITIONS_MAX: Final = 5_000  # of all groups together


class Status(StrEnum):
    UNKNOWN = "unknown"
    OK = "OK"
    WARN = "WARN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"
    ERR = "ERR"


class Look(NamedTuple):
    at_ms: int
    committed: int | None
    log_end_offset: int | None
    is_owned: bool

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end_offset is None:
            return None
        return max(self.log_end_offset - self.committed, 0)


class LagPoint(NamedTuple):
    at_ms: int
    lag: int


def partition_status(looks: Sequence[Look]) -> Status:
    """Of one partition; the looks are in the order of their times."""
    told = [(look, look.lag) for look in looks if look.lag is not None]
    lags = [lag for _, lag in told if lag is not None]
    if not lags or told[-1][0].at_ms - told[0][0].at_ms < JUDGED_FROM_MS:
        return Status.UNKNOWN
    if 0 in lags:
        return Status.OK
    committed = [look.committed or 0 for look, _ in told]
    if any(later < sooner for sooner, later in itertools.pairwise(committed)):
        return Status.REWIND
    if committed[0] == committed[-1]:
        return Status.STALL if told[-1][0].is_owned else Status.STOP
    if all(later >= sooner for sooner, later in itertools.pairwise(lags)):
        return Status.WARN
    return Status.OK


def group_status(statuses: Iterable[Status]) -> Status:
    found = set(statuses)
    if found & {Status.STALL, Status.STOP, Status.REWIND}:
        return Status.ERR
    if Status.WARN in found:
        return Status.WARN
    return Status.OK if Status.OK in found else Status.UNKNOWN


class WatchedGroup:
    """What was seen of one group. `lags` and the looks of each partition are in order of time."""

    def __init__(self) -> None:
        self.lags: deque[LagPoint] = deque(maxlen=LAGS_MAX)
        self.looks: dict[TopicPartition, deque[Look]] = {}

    def note(self, at_ms: int, rows: Sequence[PartitionLag]) -> None:
        if self.lags and at_ms - self.lags[-1].at_ms < LOOK_EVERY_MS:
            return
        self.lags.append(LagPoint(at_ms, total_lag(rows)))
        seen = {row.partition: row for row in rows}
        self.looks = {
            partition: self.looks.get(partition, deque(maxlen=LOOKS_MAX)) for partition in seen
        }
        for partition, row in seen.items():
            look = Look(at_ms, row.committed, row.log_end_offset, row.owner is not None)
            self.looks[partition].append(look)

    def partition_status(self, partition: TopicPartition) -> Status:
        return partition_status(self.looks.get(partition, ()))

    @property
    def status(self) -> Status:
        return group_status(partition_status(looks) for looks in self.looks.values())


class GroupWatch:
    """Keys are whatever tells groups apart for the one who looks."""

    def __init__(self, groups_max: int = GROUPS_MAX, partitions_max: int = PARTITIONS_MAX) -> None:
        self._groups_max = groups_max
        self._partitions_max = partitions_max
        self._groups: OrderedDict[Hashable, WatchedGroup] = OrderedDict()

    def note(self, key: Hashable, at_ms: int, rows: Sequence[PartitionLag]) -> WatchedGroup:
        """A group with more partitions than may be kept at all has its sum of lags alone."""
        group = self._groups.setdefault(key, WatchedGroup())
        self._groups.move_to_end(key)
        group.note(at_ms, rows)
        if len(group.looks) > self._partitions_max:
            group.looks = {}
        self._forget()
        return group

    def group(self, key: Hashable) -> WatchedGroup:
        """An empty one where nobody has looked."""
        return self._groups.get(key) or WatchedGroup()

    def _forget(self) -> None:
        partitions = sum(len(group.looks) for group in self._groups.values())
        while len(self._groups) > self._groups_max or (
            partitions > self._partitions_max and len(self._groups) > 1
        ):
            _, oldest = self._groups.popitem(last=False)
            partitions -= len(oldest.looks)
