"""Records as they are written: what a live page shows.

    async for glimpse in follow(source, wanted, starts):

The first glimpse is empty: the tail knows where it begins, and misses nothing that is written from
here on. A glimpse is made at once when records come after a silence, and then every GLIMPSE_S. It
has at most SHOWN_MAX records, the newest ones, and says how many matches it left out. A tail that
falls more than BEHIND_MAX records behind goes to the end, and says how many it did not look at.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, NamedTuple, Protocol

from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.cursor import Span
from tidelog.tools.console.messages.filtering import RecordFilter

GLIMPSE_S: Final = 0.1
SHOWN_MAX: Final = 25
SHOWN_BYTES_MAX: Final = 1 << 20
BEHIND_MAX: Final = 50_000
SILENCE_S: Final = 5.0


class Flow(Protocol):
    async def bounds(self) -> dict[int, Span]: ...

    def seek(self, starts: Mapping[int, int]) -> None: ...

    async def poll(self, seconds: float) -> list[ConsumerRecord]: ...

    def lag(self) -> int: ...


class Glimpse(NamedTuple):
    records: list[ConsumerRecord]  # in the order in which they came
    seen: int  # since the glimpse before: records that came
    matches: int
    left_out: int  # matches that are not in `records`
    skipped: int  # records that nobody looked at


async def follow(
    flow: Flow,
    wanted: RecordFilter,
    monotonic: Callable[[], float],
    starts: Mapping[int, int] | None = None,
) -> AsyncGenerator[Glimpse, None]:
    """From `starts`, or from the end, for ever. A silence is a glimpse of nothing now and then."""
    if starts is None:
        starts = {partition: span.stop for partition, span in (await flow.bounds()).items()}
    flow.seek(starts)
    yield Glimpse([], 0, 0, 0, 0)
    gathered = _Gathered()
    due = 0.0
    while True:
        now = monotonic()
        if gathered.seen and now >= due:
            yield gathered.glimpse()
            gathered = _Gathered()
            due = now + GLIMPSE_S
        records = await flow.poll(due - now if gathered.seen else SILENCE_S)
        if not records and not gathered.seen:
            yield gathered.glimpse()
            continue
        gathered.add(records, wanted)
        lag = flow.lag()
        if lag > BEHIND_MAX:
            gathered.skipped += lag
            flow.seek({partition: span.stop for partition, span in (await flow.bounds()).items()})
        # A flood must not keep the stream from being closed.
        await asyncio.sleep(0)


class _Gathered:
    def __init__(self) -> None:
        self.seen = 0
        self.skipped = 0
        self._matches = 0
        self._kept: deque[ConsumerRecord] = deque()
        self._bytes = 0

    def add(self, records: list[ConsumerRecord], wanted: RecordFilter) -> None:
        self.seen += len(records)
        sieve = wanted.sieve
        for record in records:
            if (sieve is None or sieve(record)) and wanted.accepts(record):
                self._matches += 1
                self._kept.append(record)
                self._bytes += len(record.value or b"")
                while len(self._kept) > SHOWN_MAX or (
                    self._bytes > SHOWN_BYTES_MAX and len(self._kept) > 1
                ):
                    self._bytes -= len(self._kept.popleft().value or b"")

    def glimpse(self) -> Glimpse:
        left_out = self._matches - len(self._kept)
        return Glimpse(list(self._kept), self.seen, self._matches, left_out, self.skipped)
