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

from tidelog.client.admin.offsets import NO_OFFSET
from tidelog.protocol.listed_timestamps import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.client.blocking.admin import Admin
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


def target_of(kind: str, value: str, now_ms: int) -> Target:
    """By the name of a flag without its dashes, and what was given with it."""
    if kind in ("to-offset", "shift-by"):
        try:
            number = int(value)
        except ValueError:
            raise BadPlan(f"{value or 'nothing'} is no number of records") from None
        return Target("offset" if kind == "to-offset" else "shift", number)
    if kind == "to-datetime":
        return Target("timestamp", datetime_ms(value))
    if kind == "by-duration":
        return Target("timestamp", now_ms - duration_ms(value))
    if kind not in ("to-earliest", "to-latest", "to-current"):
        raise BadPlan(f"{kind or 'nothing'} is no place to go on from")
    return Target(kind.removeprefix("to-"))


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


def offsets_at(
    admin: Admin, partitions: Sequence[TopicPartition], when: int
) -> dict[TopicPartition, int]:
    """At the end `when` stands for, or at that time; raises the first refusal."""
    found = admin.list_offsets(dict.fromkeys(partitions, when))
    return {each: result.get().offset for each, result in found.items()}


def plan(
    admin: Admin,
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    first = offsets_at(admin, partitions, EARLIEST)
    last = offsets_at(admin, partitions, LATEST)
    if target.kind == "timestamp":
        found = offsets_at(admin, partitions, target.value)
        return {
            each: last[each] if offset == NO_OFFSET else offset for each, offset in found.items()
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
