"""Appends that arrive in one turn of the loop share a write (group commit).

Many connections that each send one small batch would cost a write for each. So a small append may
wait, queued at its partition, for the end of the turn: when every socket that was readable has been
served, the log takes the whole queue at once (`PartitionLog.append_all_as_leader`), and then each
is told its outcome. Until then nothing has happened: the log, its readers and its followers know
only what is written.

A queue never outlives what it was made for. Whoever appends to the partition otherwise, or is about
to change who leads it, has the queue appended first (`Partition.append_queued`).

The first append of a turn does not wait. Its answer leaves while the others are still received, so
a lone client loses nothing, and one that has a few requests in flight works while the broker does.
Nor does waiting pay where few appends meet in a partition, because it costs about as much as a
write. After a turn in which few did, the next ones are appended at once: a hundred of them, and
twice as many after each trial that fails, up to a bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from tidelog.log.append_run import LeaderAppend
from tidelog.supervisor import attempt

if TYPE_CHECKING:
    from tidelog.clock import Timer
    from tidelog.replication.partition import Partition

SMALL_BYTES: Final = 16 * 1024  # larger ones do not wait
TURN_BYTES_MAX: Final = 1024 * 1024  # so much may wait; it is held beside the network's memory
APPENDS_PER_WRITE_MIN: Final = 8  # fewer are not worth waiting for
APPENDS_BETWEEN_TRIALS: Final = 100  # at first
APPENDS_BETWEEN_TRIALS_MAX: Final = 1600


class QueuedAppend(LeaderAppend, ABC):
    """Its records are its own: the frame they came in is gone by the end of the turn."""

    __slots__ = ()

    @abstractmethod
    def settle(self) -> None:
        """Told once there is an outcome; there is none if the broker has a bug."""


class AppendTurn:
    """Touched only on the broker loop."""

    __slots__ = (
        "_at_once_count",
        "_bytes",
        "_count",
        "_has_begun",
        "_partitions",
        "_timer",
        "_trial_gap",
    )

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._has_begun = False  # and `end` will be called
        self._partitions: list[Partition] = []  # with a queue, or had one in this turn
        self._count = 0  # of appends that have waited in this turn
        self._bytes = 0
        self._trial_gap = APPENDS_BETWEEN_TRIALS
        self._at_once_count = self._trial_gap  # so many may as well be appended at once

    def is_worth_waiting(self, size_bytes: int) -> bool:
        """Whether an append of so many bytes should wait for others."""
        if self._at_once_count:
            self._at_once_count -= 1
            return False
        if size_bytes > SMALL_BYTES:
            return False
        if self._has_begun:
            return True
        self._has_begun = True
        self._timer.call_later(0.0, self.end)
        return False

    def add(self, partition: Partition, append: QueuedAppend) -> None:
        self._count += 1
        self._bytes += len(append.records)
        if partition.append_soon(append):
            self._partitions.append(partition)
        if self._bytes > TURN_BYTES_MAX:
            self._append_queued()

    def end(self) -> None:
        """Append everything queued. The timer calls this at the end of the turn; a request that
        cannot wait until then calls it earlier.
        """
        queues = max(len(self._partitions), 1)
        if self._has_begun:
            if self._count < APPENDS_PER_WRITE_MIN * queues:
                self._at_once_count = self._trial_gap
                self._trial_gap = min(2 * self._trial_gap, APPENDS_BETWEEN_TRIALS_MAX)
            else:
                self._trial_gap = APPENDS_BETWEEN_TRIALS
        self._has_begun = False
        self._count = 0
        self._append_queued()

    def _append_queued(self) -> None:
        partitions, self._partitions = self._partitions, []
        self._bytes = 0
        for partition in partitions:
            attempt("appending what waited", partition.append_queued)
