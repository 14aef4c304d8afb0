"""A client that asks as fast as it is let, and measures how fast that is.

It passes over throttle_time_ms, so only the broker holds it back.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from statistics import linear_regression

STEP_S = 0.01


def measured_rate(call: Callable[[], float], seconds: float, warm_up_s: float = 2.0) -> float:
    """How many units a second `call` gets done, which says how many it was.

    It is the slope of the line through all that was done by then. A quota lets bursts through, so
    the difference between two moments would depend on whether a burst is just over.
    """
    done = 0.0
    times, totals = [time.monotonic()], [0.0]
    while times[-1] - times[0] < warm_up_s + seconds:
        units = call()
        times.append(time.monotonic())
        totals.append(done)
        done += units
    steps = [times[0] + warm_up_s + step * STEP_S for step in range(int(seconds / STEP_S))]
    return linear_regression(steps, [totals[bisect_right(times, at) - 1] for at in steps]).slope
