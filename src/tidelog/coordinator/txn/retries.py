"""Transactions whose end is to be tried again, each in its own time.

One that cannot be finished now (a partition without a leader, a broker that does not answer) is
tried again after a pause that doubles from 0.1 to 1 second. What is waited for costs nothing: the
one timer stands at the earliest, and a turn of the loop takes a bounded number of those due.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer, TimerHandle
    from tidelog.coordinator.txn.shard import TransactionShard

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 1.0
PER_TURN: Final = 50

Retry = Callable[["TransactionShard", str], object]


class Retries:
    """Touched only on the broker loop."""

    def __init__(self, clock: Clock, timer: Timer, retry: Retry) -> None:
        self._clock = clock
        self._timer = timer
        self._retry = retry
        self._numbers = count()  # so that shards are not compared
        self._waiting: list[tuple[float, int, TransactionShard, str]] = []  # a heap, by due time
        self._handle: TimerHandle | None = None
        self._armed_for = 0.0

    def later(self, shard: TransactionShard, transactional_id: str) -> None:
        pause_s = shard.retry_pauses.get(transactional_id, PAUSE_S)
        shard.retry_pauses[transactional_id] = min(2 * pause_s, PAUSE_MAX_S)
        self._add(shard, transactional_id, pause_s)

    def soon(self, shard: TransactionShard, transactional_id: str) -> None:
        """Behind those that are due already."""
        self._add(shard, transactional_id, 0.0)

    def _add(self, shard: TransactionShard, transactional_id: str, pause_s: float) -> None:
        if transactional_id in shard.retrying:
            return
        shard.retrying.add(transactional_id)
        due = self._clock.monotonic() + pause_s
        heappush(self._waiting, (due, next(self._numbers), shard, transactional_id))
        self._arm()

    def _arm(self) -> None:
        due = self._waiting[0][0]
        if self._handle is not None:
            if self._armed_for <= due:
                return
            self._handle.cancel()
        self._armed_for = due
        self._handle = self._timer.call_later(max(due - self._clock.monotonic(), 0.0), self._turn)

    def _turn(self) -> None:
        self._handle = None
        waiting = self._waiting
        now = self._clock.monotonic() + 0.001  # timers have no more than milliseconds
        due: list[tuple[TransactionShard, str]] = []
        while waiting and waiting[0][0] <= now and len(due) < PER_TURN:
            _, _, shard, transactional_id = heappop(waiting)
            shard.retrying.discard(transactional_id)
            due.append((shard, transactional_id))
        if waiting:
            self._arm()
        while due:
            shard, transactional_id = due.pop(0)
            is_done = False
            try:
                self._retry(shard, transactional_id)
                is_done = True
            finally:  # what was not expected passes on to the loop, which logs it
                if not is_done:
                    self.later(shard, transactional_id)
                    for each in due:
                        self.soon(*each)
