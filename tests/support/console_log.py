"""A topic in memory, as the console's message readings need it (`reading.Source`, `tail.Flow`).

Records are given out `poll_records` at a time, partition after partition. Each poll takes
`poll_s` of the clock. Offsets without a record are gaps, as compaction and transactions leave them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.cursor import Span


def record_of(
    offset: int,
    value: bytes | None = b"v",
    *,
    partition: int = 0,
    key: bytes | None = None,
    timestamp: int = 0,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, timestamp, 0, key, value, headers, 0)


class Ticks:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ConsoleLog:
    def __init__(
        self,
        records: Iterable[ConsumerRecord],
        ends: Mapping[int, int] | None = None,
        *,
        clock: Ticks | None = None,
        poll_records: int = 7,
        poll_s: float = 0.0,
    ) -> None:
        self.records: dict[int, list[ConsumerRecord]] = {}
        for record in sorted(records, key=lambda each: each.offset):
            self.records.setdefault(record.partition, []).append(record)
        self.ends = {
            partition: rows[-1].offset + 1 for partition, rows in self.records.items()
        } | dict(ends or {})
        self.starts = dict.fromkeys(self.ends, 0)
        self.clock = clock or Ticks()
        self.polls = 0
        self._poll_records = poll_records
        self._poll_s = poll_s
        self._at: dict[int, int] = {}

    async def bounds(self) -> dict[int, Span]:
        return {
            partition: Span(self.starts[partition], end) for partition, end in self.ends.items()
        }

    def seek(self, starts: Mapping[int, int]) -> None:
        self._at = dict(starts)

    def leave(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            del self._at[partition]

    async def poll(self, seconds: float) -> list[ConsumerRecord]:
        self.polls += 1
        self.clock.now += self._poll_s
        taken: list[ConsumerRecord] = []
        for partition, at in self._at.items():
            rows = [each for each in self.records.get(partition, []) if each.offset >= at]
            own = rows[: self._poll_records - len(taken)]
            taken += own
            self._at[partition] = own[-1].offset + 1 if own else at
            if len(own) == len(rows):
                self._at[partition] = max(self._at[partition], self.ends[partition])
        return taken

    def positions(self) -> dict[int, int]:
        return dict(self._at)

    def lag(self) -> int:
        return sum(
            len([each for each in self.records.get(partition, []) if each.offset >= at])
            for partition, at in self._at.items()
        )
