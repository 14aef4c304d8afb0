"""Where to begin without a position: what ListOffsets is asked for each `auto.offset.reset`.

earliest       the first offset that can be read
latest         the end of the log
none           no reset: NoOffsetForPartition or OffsetOutOfRange is raised
by_duration    the first record that is younger than the duration, else the end (KIP-1106)
"""

from __future__ import annotations

from typing import Final

from tidelog.config.client import OffsetResetPolicy
from tidelog.protocol import listed_timestamps

EARLIEST: Final = OffsetResetPolicy("earliest")
LATEST: Final = OffsetResetPolicy("latest")
NONE: Final = OffsetResetPolicy("none")


def reset_timestamp(policy: OffsetResetPolicy, now_ms: int) -> int:
    assert policy != NONE
    if policy == EARLIEST:
        return listed_timestamps.EARLIEST
    if policy == LATEST:
        return listed_timestamps.LATEST
    return max(now_ms - policy.duration_ms, 0)
