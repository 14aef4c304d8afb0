"""Limits on how much of something may happen in a second: bytes copied, connections made.

Both kinds are told what was done (`spend`) and say how long to wait before doing more (`wait_s`).
They count and never sleep; the owner decides what waiting means. Not safe for threads.

- `RateLimiter` remembers one debt and pays it off at `rate`. It limits connections accepted, moves
  between log directories, and the log cleaner.
- `WindowedRate` remembers the samples of a sliding window, as Kafka's `SimpleRate` of a sensor with
  a quota. It limits replication (KIP-73), where keys of the configuration set the window.
- `QuotaRate` is the same with the window of Kafka's `Rate`. It limits clients and addresses.

`Sensors` keeps such limits by name. Clients choose some of the names, so it forgets.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from math import inf
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from tidelog.clock import Clock

WORTH_WAITING_S: Final = 0.001  # a shorter wait is not worth a timer
SLOWEST_RATE: Final = 0.001  # stands for 0: nothing at all, for all that anybody will see
SENSORS_MAX: Final = 10_000
IDLE_S_MAX: Final = 3600.0  # Kafka's ClientQuotaManager.InactiveSensorExpirationTimeSeconds

Limit = TypeVar("Limit")


class RateLimiter:
    """Lets `rate` units pass in a second on average.

    Every unit costs 1 / rate seconds. `_paid_until` is the moment until which the units spent so
    far last at that rate: ahead of now it is a debt, behind now it is a credit. The credit grows to
    `burst_s` seconds at most, so rate * burst_s units may come at once after a quiet time.
    """

    __slots__ = ("_burst_s", "_clock", "_paid_until", "_rate")

    def __init__(
        self, rate: float, clock: Clock, *, burst_s: float = 0.0, credit_s: float = 0.0
    ) -> None:
        self._clock = clock
        self._rate = rate
        self._burst_s = burst_s
        self._paid_until = clock.monotonic() - credit_s

    @property
    def rate(self) -> float:
        return self._rate

    def change(self, rate: float) -> None:
        """The new rate holds from now on; debt and credit at another rate are forgotten."""
        if rate != self._rate:
            self._rate = rate
            self.restart()

    def restart(self) -> None:
        """Forgets debt and credit."""
        self._paid_until = self._clock.monotonic()

    def spend(self, units: float) -> None:
        self._paid_until = self._since(self._clock.monotonic()) + self._cost_s(units)

    def wait_s(self, units: float = 0) -> float:
        """How long until the debt is paid and `units` more may pass; 0.0 if they may now.

        Waits below WORTH_WAITING_S count as none. They are not lost, because the debt remains.
        """
        now = self._clock.monotonic()
        wait_s = self._since(now) + self._cost_s(units) - now
        return wait_s if wait_s >= WORTH_WAITING_S else 0.0

    def _since(self, now: float) -> float:
        return max(self._paid_until, now - self._burst_s)

    def _cost_s(self, units: float) -> float:
        return units / max(self._rate, SLOWEST_RATE)


class WindowedRate:
    """The average over `sample_count` samples of `sample_s` seconds each, against a limit.

    The sum of the samples is divided by the time since the oldest of them began, and by the length
    of one sample at least. What is let through may go over the limit; then nothing may follow until
    the average is below it again.
    """

    __slots__ = ("_clock", "_sample_count", "_sample_s", "_samples", "_total", "rate")

    def __init__(self, clock: Clock, *, sample_count: int, sample_s: float) -> None:
        self._clock = clock
        self._sample_count = sample_count
        self._sample_s = sample_s
        self._samples: deque[list[float]] = deque()  # [when it began, units], oldest first
        self._total = 0.0  # of all samples
        self.rate = inf  # the limit, in units a second

    def spend(self, units: float) -> None:
        now = self._clock.monotonic()
        self._drop_old(now)
        if not self._samples or now - self._samples[-1][0] >= self._sample_s:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += units
        self._total += units

    def measured(self) -> float:
        """Units a second, now."""
        now = self._clock.monotonic()
        self._drop_old(now)
        return self._total / self._window_s(now)

    @property
    def is_exceeded(self) -> bool:
        if self._total <= self.rate * self._sample_s:
            return False  # whatever the time is
        now = self._clock.monotonic()
        self._drop_old(now)
        return self._total > self.rate * self._window_s(now)

    def wait_s(self) -> float:
        """Until it is not exceeded any more, if nothing is spent until then."""
        if not self.is_exceeded:
            return 0.0
        now = self._clock.monotonic()
        expiry_s = self._samples[0][0] + self._sample_count * self._sample_s - now
        if not self.rate:
            return expiry_s
        return min(self._total / self.rate - self._window_s(now), expiry_s)

    def _window_s(self, now: float) -> float:
        elapsed_s = now - self._samples[0][0] if self._samples else 0.0
        return max(elapsed_s, self._sample_s)

    def _drop_old(self, now: float) -> None:
        oldest = now - self._sample_count * self._sample_s
        while self._samples and self._samples[0][0] <= oldest:
            self._total -= self._samples.popleft()[1]


class QuotaRate(WindowedRate):
    """Counts the window as if all but one of its samples were over from the beginning.

    So a client that has been quiet may spend `sample_count - 1` samples' worth at once. `debt_s` is
    the wait after which the average is back at the limit, whatever is forgotten until then: Kafka's
    `QuotaUtils.throttleTime`.
    """

    __slots__ = ()

    def debt_s(self) -> float:
        if not self.is_exceeded:
            return 0.0
        window_s = self._window_s(self._clock.monotonic())
        return self._total / max(self.rate, SLOWEST_RATE) - window_s

    def _window_s(self, now: float) -> float:
        elapsed_s = now - self._samples[0][0] if self._samples else 0.0
        missing = self._sample_count - 1 - int(elapsed_s / self._sample_s)
        return max(elapsed_s + max(missing, 0) * self._sample_s, self._sample_s)


class Sensors(Generic[Limit]):
    """Limits by name, at most SENSORS_MAX. Those unused for IDLE_S_MAX go, and if there are still
    too many, those unused longest: a limit that is made anew has forgotten what was spent.
    """

    def __init__(self, make: Callable[[], Limit], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._limits: OrderedDict[Hashable, tuple[Limit, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._limits)

    def items(self) -> list[tuple[Hashable, Limit]]:
        return [(name, limit) for name, (limit, _) in self._limits.items()]

    def get(self, name: Hashable) -> Limit:
        now = self._clock.monotonic()
        known = self._limits.get(name)
        if known is None:
            self._forget(now - IDLE_S_MAX)
            limit = self._make()
            self._limits[name] = limit, now
            return limit
        limit = known[0]
        self._limits[name] = limit, now
        self._limits.move_to_end(name)
        return limit

    def _forget(self, before: float) -> None:
        limits = self._limits
        while limits and (len(limits) >= SENSORS_MAX or next(iter(limits.values()))[1] < before):
            limits.popitem(last=False)
