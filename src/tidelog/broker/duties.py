"""What a broker does by the clock: each duty is a function run again and again on the loop.

A duty that may take long returns its steps, which are done in slices. Its next turn begins nothing
while those of the last one are not done.
A duty that fails is logged (`supervisor`) and tried again at its next turn; one failing duty stops
neither the broker nor the other duties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.clock import Timer, TimerHandle
from tidelog.slices import SlicedWork
from tidelog.supervisor import attempt


class Duty:
    def __init__(
        self,
        name: str,
        interval_ms: Callable[[], int],
        run: Callable[[], object],
        timer: Timer,
        work: SlicedWork | None = None,
    ) -> None:
        self.name = name
        self._interval_ms = interval_ms  # asked before each turn: it may be configured anew
        self._run = run
        self._timer = timer
        self._work = work
        self._handle: TimerHandle | None = None

    def start(self) -> None:
        self._handle = self._timer.call_later(self._interval_ms() / 1000, self._turn)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _turn(self) -> None:
        attempt(self.name, self._begin)
        if self._handle is not None:
            self.start()

    def _begin(self) -> None:
        steps = self._run()
        if isinstance(steps, Iterator):
            assert self._work is not None, "a duty in steps needs somebody to do them"
            self._work.repeat(self.name, self._supervised(steps))

    def _supervised(self, steps: Iterator[object]) -> Iterator[None]:
        is_done = False

        def step() -> None:
            nonlocal is_done
            is_done = next(steps, self) is self

        while attempt(self.name, step) is None and not is_done:
            yield
