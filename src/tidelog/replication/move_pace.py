"""A bound on the bytes a second that are copied between log directories."""

from __future__ import annotations

from typing import Final

from tidelog.clock import Clock

WORTH_WAITING_S: Final = 0.001
SLOWEST_BYTES_PER_SECOND: Final = 0.001  # nothing at all, for all that anybody will see


class MovePace:
    """Shared by all moves of a broker; touched only on its loop."""

    __slots__ = ("_bytes_per_second", "_clock", "_free_at_s")

    def __init__(self, bytes_per_second: int, clock: Clock) -> None:
        self._clock = clock
        self._bytes_per_second = float(bytes_per_second)
        self._free_at_s = clock.monotonic()  # when what has been copied is paid for

    @property
    def bytes_per_second(self) -> int:
        return int(self._bytes_per_second)

    def change(self, bytes_per_second: int) -> None:
        """Holds from now on; what was still to be waited for is not."""
        if bytes_per_second != self._bytes_per_second:
            self._bytes_per_second = float(bytes_per_second)
            self._free_at_s = self._clock.monotonic()

    def spend(self, byte_count: int) -> None:
        seconds = byte_count / max(self._bytes_per_second, SLOWEST_BYTES_PER_SECOND)
        self._free_at_s = max(self._free_at_s, self._clock.monotonic()) + seconds

    def wait_s(self) -> float:
        """Until more may be copied; less than a millisecond is not worth waiting for."""
        wait_s = self._free_at_s - self._clock.monotonic()
        return wait_s if wait_s >= WORTH_WAITING_S else 0.0
