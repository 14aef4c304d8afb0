"""How much of its time a thread had nothing to do, as a share between 0 and 1.

Kafka tells this of its network threads and its request handlers. Here the broker loop is the
request handler, and the network thread too unless `num.network.threads` is larger than 1. A thread
is idle while it uses no processor, so it counts as idle while it waits for a disk.

A share covers the last one to two minutes, or the time since the reading before if that is longer.
The first reading has nothing to compare with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

WINDOW_S: Final = 60.0


class IdleShare:
    """Of one or more threads, on average. Touched on the broker loop."""

    def __init__(self, used_s: Callable[[], float], threads: int = 1) -> None:
        self._used_s = used_s  # processor time of all of them so far
        self._threads = threads
        self._earlier: tuple[float, float] | None = None  # when, and what was used by then
        self._later: tuple[float, float] | None = None

    def read(self, now_s: float) -> float | None:
        used_s = self._used_s()
        since = self._earlier
        if self._later is None or now_s - self._later[0] >= WINDOW_S:
            self._earlier, self._later = self._later or (now_s, used_s), (now_s, used_s)
        if since is None or now_s <= since[0]:
            return None
        busy = (used_s - since[1]) / (now_s - since[0]) / self._threads
        return min(max(1.0 - busy, 0.0), 1.0)


def idle_share_of(idents: Sequence[int]) -> IdleShare | None:
    """Of threads that live as long as the broker; None where the system does not tell."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    clocks = [time.pthread_getcpuclockid(ident) for ident in idents]

    def used_s() -> float:
        return sum(map(time.clock_gettime, clocks))

    return IdleShare(used_s, len(clocks))
