"""Whether the broker lives, and whether clients should be sent to it.

    state      when                                                         live  ready
    STARTING   until the ready line is printed: logs are loaded, the        yes   no
               cluster is joined
    SERVING    every listener accepts connections                           yes   yes
               a listener does not: no descriptors, connections or rate     yes   no
    STOPPING   from the signal on; leaderships are handed over              yes   no

It is neither live nor ready while a log directory is offline, and while the event loop has not
turned for `tidelog.health.loop.stall.ms`. Before it serves, the loop is not looked at: loading logs
holds it.

The broker loop writes (`beat` comes every second), the thread of the HTTP server reads. Each field
is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from tidelog.clock import Clock

BEAT_S: Final = 1.0


class State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class Health:
    def __init__(self, clock: Clock, stall_ms: int) -> None:
        self._clock = clock
        self._stall_s = stall_ms / 1000
        self.state = State.STARTING
        self._turned_at = clock.monotonic()
        self._offline: Sequence[str] = ()  # log directories
        self._closed_listeners: Sequence[str] = ()

    def serves(self) -> None:
        self.beat((), ())
        self.state = State.SERVING

    def stops(self) -> None:
        self.state = State.STOPPING

    def beat(self, offline: Sequence[str], closed_listeners: Sequence[str]) -> None:
        """On the broker loop, which turns, therefore."""
        self._offline = offline
        self._closed_listeners = closed_listeners
        self._turned_at = self._clock.monotonic()

    def sick(self) -> str | None:
        """Why the broker is not live; None if it is."""
        if self._offline:
            return f"log directories are offline: {', '.join(self._offline)}"
        silent_s = self._clock.monotonic() - self._turned_at
        if self.state is State.SERVING and silent_s >= self._stall_s:
            return f"the event loop has not turned for {silent_s:.0f} s"
        return None

    def not_ready(self) -> str | None:
        """Why clients should stay away; None if they are welcome."""
        if self.state is not State.SERVING:
            return str(self.state.value)
        sick = self.sick()
        if sick is None and self._closed_listeners:
            return f"listeners do not accept: {', '.join(self._closed_listeners)}"
        return sick
