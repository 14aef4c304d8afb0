"""How much one micro-batch takes: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and
`maxTriggerDelay`. No I/O; the clock is passed in.

Of a limit every partition gets its share by size, rounded down, but a share below one becomes one
so that small partitions do not starve; a batch may therefore exceed the limit a little.

A batch waits for `minOffsetsPerTrigger` until `maxTriggerDelay` has passed since the last one. The
first batch of a run does not wait. All of this is as in Spark's kafka source.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from typing import TYPE_CHECKING

from tidelog.spark.offsets import PartitionOffsets
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.clock import Clock


def limited(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> PartitionOffsets:
    """`end`, moved back so that about `limit` offsets lie between. `start` knows all of `end`."""
    sizes = {partition: max(end[partition] - start[partition], 0) for partition in end}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    return {
        partition: end[partition]
        if not sizes[partition]
        else min(end[partition], start[partition] + _share(limit * sizes[partition] / total))
        for partition in end
    }


def _share(share: float) -> int:
    return ceil(share) if share < 1 else floor(share)


class Patience:
    """Whether a small batch is to wait. State of one run of a query; for the driver alone."""

    __slots__ = ("_clock", "_last_trigger_ms", "_max_delay_ms", "_min_offsets")

    def __init__(self, min_offsets: int, max_delay_ms: int, clock: Clock) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._clock = clock
        self._last_trigger_ms: int | None = None  # None before the first batch

    def waits(self, available: int) -> bool:
        """Called once a trigger with the number of new offsets."""
        now_ms = self._clock.time_ms()
        last_ms = self._last_trigger_ms
        is_late = last_ms is None or now_ms - last_ms >= self._max_delay_ms
        if not is_late and available < self._min_offsets:
            return True
        self._last_trigger_ms = now_ms
        return False
