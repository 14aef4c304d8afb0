"""Where a group is to go on reading: the offsets that `reset-offsets` plans.

--to-earliest, --to-latest     the ends of each log
--to-current                   what is committed; the end where nothing is
--to-offset N, --shift-by N    that offset, or that many from the committed one, moved to the
                               nearest end of the log where it lies outside
--to-datetime, --by-duration   the first record from that time on; the end where there is none
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.offsets import NO_OFFSET, earliest_offsets, latest_offsets, list_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.client.cluster import Cluster
    from tidelog.types import TopicPartition

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class BadPlan(ValueError):
    """What is asked for cannot be planned; the message says why."""


class Target(NamedTuple):
    """One of the above by its name, and the number that goes with it."""

    kind: str
    value: int = 0


def datetime_ms(text: str) -> int:
    """YYYY-MM-DDTHH:mm:SS.sss, in UTC where no offset is given."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise BadPlan(f"{text} is no time such as 2026-01-31T13:00:00.000") from None
    given = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    return round(given.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """PnDTnHnMnS."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise BadPlan(f"{text} is no duration such as P1DT2H30M")
    given = match.groupdict(default="0")
    return round(sum(float(given[name]) * each for name, each in _SECONDS.items()) * 1000)


def plan(
    cluster: Cluster,
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    first = earliest_offsets(cluster, partitions)
    last = latest_offsets(cluster, partitions)
    if target.kind == "timestamp":
        found = list_offsets(cluster, dict.fromkeys(partitions, target.value))
        return {
            each: last[each] if row.offset == NO_OFFSET else row.offset
            for each, row in found.items()
        }
    return {each: _planned(target, each, first[each], last[each], committed) for each in partitions}


def _planned(
    target: Target,
    partition: TopicPartition,
    first: int,
    last: int,
    committed: Mapping[TopicPartition, int],
) -> int:
    if target.kind == "earliest":
        return first
    if target.kind == "latest":
        return last
    if target.kind == "offset":
        return min(max(target.value, first), last)
    if target.kind == "current":
        return min(max(committed.get(partition, last), first), last)
    if partition not in committed:
        raise BadPlan(f"nothing is committed for partition {partition}, from which to shift")
    return min(max(committed[partition] + target.value, first), last)
