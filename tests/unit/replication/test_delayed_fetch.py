from __future__ import annotations

from typing import Any, cast

from tests.support.clock import FakeClock
from tidelog.replication.delayed_fetch import DelayedFetch


class WatchedPartition:
    """Stands in for a Partition: only the watching."""

    def __init__(self) -> None:
        self.fetches: set[DelayedFetch] = set()

    def watch(self, fetch: DelayedFetch) -> None:
        self.fetches.add(fetch)

    def unwatch(self, fetch: DelayedFetch) -> None:
        self.fetches.discard(fetch)


class Waiting:
    def __init__(self, *, bytes_missing: int = 100, wait_ms: int = 500) -> None:
        self.clock = FakeClock()
        self.partitions = [WatchedPartition(), WatchedPartition()]
        self.wakes: list[float] = []
        self.fetch = DelayedFetch(
            cast(Any, self.partitions), bytes_missing, self.clock, self._woken
        )
        self.fetch.park(wait_ms)

    def _woken(self) -> None:
        self.wakes.append(self.clock.monotonic())

    @property
    def watched(self) -> bool:
        return any(partition.fetches for partition in self.partitions)


def test_wakes_once_when_enough_bytes_arrived() -> None:
    waiting = Waiting(bytes_missing=100)
    waiting.fetch.bytes_became_visible(60)
    waiting.clock.advance(ms=1)
    assert waiting.wakes == []
    waiting.fetch.bytes_became_visible(40)
    waiting.clock.advance(ms=600)
    assert waiting.wakes == [0.001]


def test_answer_is_not_made_inside_the_append() -> None:
    waiting = Waiting(bytes_missing=1)
    waiting.fetch.bytes_became_visible(10)
    assert waiting.wakes == []
    assert not waiting.watched


def test_wakes_at_its_deadline_without_bytes() -> None:
    waiting = Waiting(wait_ms=500)
    waiting.clock.advance(ms=499)
    assert waiting.wakes == []
    waiting.clock.advance(ms=1)
    assert waiting.wakes == [0.5]
    assert not waiting.watched


def test_cancelled_fetch_wakes_nobody_and_leaves_its_partitions() -> None:
    waiting = Waiting()
    waiting.fetch.cancel()
    waiting.clock.advance(ms=1000)
    assert waiting.wakes == []
    assert not waiting.watched
    assert waiting.clock.pending_timers() == 0


def test_a_change_other_than_an_append_wakes_at_once() -> None:
    waiting = Waiting(bytes_missing=10_000)
    waiting.fetch.wake_soon()
    waiting.clock.advance(ms=0)
    assert len(waiting.wakes) == 1
