"""How many requests of each API came, how they ended and how long they took.

The dispatcher adds to plain integers; a scrape turns them into Kafka's `RequestMetrics`. A request
is timed from the moment its bytes were received until its answer is handed to the connection, and
from there until the last byte of the answer is in the socket:

    received --queue--> handled --local--> answered, or waits --remote--> answered --send--> sent
    |--------------------------- total ---------------------------------|

The total is taken of every request, the parts of one in SAMPLED, because each costs another look at
the clock. An answer that waits for earlier ones of its connection is being sent, too. A
request without an answer (Produce with acks=0) has no such time.

A histogram has 4 buckets for each power of two of microseconds, so that a quantile is off by less
than 12 %. It counts in two spans: `turn` ends the present one, and quantiles are of both. A scrape
turns it when a span is WINDOW_S old, so quantiles cover the last one to two minutes, or the time
since the last scrape if that is longer. Touched on the broker loop only.
"""

from __future__ import annotations

from typing import Final

SAMPLED: Final = 8
WINDOW_S: Final = 60.0
MICROSECONDS_MAX: Final = (1 << 36) - 1
BUCKETS: Final = 140  # of MICROSECONDS_MAX, and one more
VERSIONS_MAX: Final = 32


class Histogram:
    __slots__ = ("_earlier", "_now", "count", "total_us")

    def __init__(self) -> None:
        self._now = [0] * BUCKETS
        self._earlier = [0] * BUCKETS
        self.count = 0
        self.total_us = 0

    def add(self, seconds: float) -> None:
        us = int(seconds * 1e6)
        if us < 0:
            us = 0
        elif us > MICROSECONDS_MAX:
            us = MICROSECONDS_MAX
        self.count += 1
        self.total_us += us
        if us >= 8:
            shift = us.bit_length() - 3
            us = shift * 4 + (us >> shift)
        self._now[us] += 1

    def turn(self) -> None:
        self._earlier = self._now
        self._now = [0] * BUCKETS

    def quantiles_ms(self, fractions: tuple[float, ...]) -> list[float] | None:
        """For fractions that ascend; None if there was nothing in the window."""
        counts = [now + earlier for now, earlier in zip(self._now, self._earlier, strict=True)]
        whole = sum(counts)
        if not whole:
            return None
        found: list[float] = []
        index = 0
        below = 0
        for fraction in fractions:
            rank = fraction * whole
            while below + counts[index] < rank:
                below += counts[index]
                index += 1
            lower_us, width_us = _bounds(index)
            inside = (rank - below) / counts[index] if counts[index] else 0.0
            found.append((lower_us + width_us * inside) / 1000)
        return found


def _bounds(index: int) -> tuple[int, int]:
    if index < 8:
        return index, 1
    shift = index // 4 - 1
    return (4 + index % 4) << shift, 1 << shift


class ApiMetrics:
    __slots__ = ("by_version", "errors", "local", "queue", "remote", "sampling", "send", "total")

    def __init__(self) -> None:
        self.by_version = [0] * VERSIONS_MAX  # requests
        self.errors: dict[int, int] = {}  # answers with an error, by code; rows count one each
        self.sampling = 0  # counts down to the next request whose parts are timed
        self.total = Histogram()
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.send = Histogram()

    def begin(self, version: int) -> bool:
        """A request has come; whether its parts are to be timed."""
        self.by_version[version] += 1
        if self.sampling:
            self.sampling -= 1
            return False
        self.sampling = SAMPLED - 1
        return True

    def failed(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def turn(self) -> None:
        for histogram in (self.total, self.queue, self.local, self.remote, self.send):
            histogram.turn()


class RequestMetrics:
    __slots__ = ("_turned_at", "by_key")

    def __init__(self) -> None:
        self.by_key: dict[int, ApiMetrics] = {}
        self._turned_at = 0.0

    def of(self, api_key: int) -> ApiMetrics:
        metrics = self.by_key.get(api_key)
        if metrics is None:
            metrics = self.by_key[api_key] = ApiMetrics()
        return metrics

    def maybe_turn(self, now: float) -> None:
        """Call it after the quantiles were read."""
        if now - self._turned_at >= WINDOW_S:
            self._turned_at = now
            for metrics in self.by_key.values():
                metrics.turn()
