"""What a producer has encoded and not yet seen acknowledged, for one partition. No I/O.

Every batch has a place: the number of rows written to the partition before it. Its base sequence is
the place modulo 2^31, fixed when it is encoded, so a batch sent again is the same bytes and the
broker knows it. Batches are sent in the order of their places; one that failed goes back to its
place, before those that were to follow it.

    waiting    encoded, to be sent (again)
    in flight  sent, not answered

A broker remembers a producer's last five batches. An answer may be lost although the batch was
written, and batches after it may be written and acknowledged meanwhile; so from the first batch
that is not acknowledged to the last that was ever sent there are at most as many as the broker
remembers: the window.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.client.errors import ClientError
    from tidelog.types import TopicPartition

SEQUENCES: Final = 1 << 31

_place = attrgetter("place")


class ProduceBatch:
    __slots__ = (
        "attempts",
        "data",
        "deadline",
        "out_of_order_count",
        "partition",
        "place",
        "problem",
        "records_count",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: bytearray,
        records_count: int,
        place: int,
        deadline: float,
    ) -> None:
        self.partition = partition
        self.data = data
        self.records_count = records_count
        self.place = place
        self.deadline = deadline  # by the producer's own clock
        self.attempts = 0
        self.out_of_order_count = 0
        self.problem: ClientError | None = None

    def __repr__(self) -> str:
        return f"ProduceBatch({self.partition}, place={self.place}, rows={self.records_count})"


class PartitionQueue:
    __slots__ = (
        "_window",
        "in_flight",
        "last_offset",
        "next_place",
        "partition",
        "retry_at",
        "waiting",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.next_place = 0
        self.last_offset = -1  # of the last record acknowledged; -1 before any, or with acks=0
        self.retry_at = 0.0  # nothing is sent before
        self.waiting: deque[ProduceBatch] = deque()  # by place
        self.in_flight: list[ProduceBatch] = []  # by place
        # Places sent so far and whether they are acknowledged, from the first that is not.
        self._window: dict[int, bool] = {}

    @property
    def is_empty(self) -> bool:
        return not self.waiting and not self.in_flight

    def place_for(self, records_count: int) -> int:
        """The place of the next batch."""
        place = self.next_place
        self.next_place += records_count
        return place

    def add(self, batch: ProduceBatch) -> None:
        assert not self.waiting or self.waiting[-1].place < batch.place, batch
        self.waiting.append(batch)

    def may_send(self, window_max: int) -> bool:
        """Whether the next batch may be sent without making the window too long."""
        if not self.waiting:
            return False
        return self.waiting[0].place in self._window or len(self._window) < window_max

    def send_next(self) -> ProduceBatch:
        batch = self.waiting.popleft()
        self._window.setdefault(batch.place, False)
        insort(self.in_flight, batch, key=_place)
        batch.attempts += 1
        return batch

    def acknowledge(self, batch: ProduceBatch, base_offset: int) -> None:
        self.in_flight.remove(batch)
        self._window[batch.place] = True
        for place in sorted(self._window):
            if not self._window[place]:
                break
            del self._window[place]
        if base_offset >= 0:
            self.last_offset = max(self.last_offset, base_offset + batch.records_count - 1)

    def put_back(self, batch: ProduceBatch) -> None:
        """To its place among those that wait."""
        self.in_flight.remove(batch)
        waiting = sorted([*self.waiting, batch], key=_place)
        self.waiting = deque(waiting)

    def replace(self, batch: ProduceBatch, halves: list[ProduceBatch]) -> None:
        """A batch that is too large, by two that cover the same places; all of them wait."""
        self.in_flight.remove(batch)
        self.waiting = deque(sorted([*self.waiting, *halves], key=_place))

    def is_first(self, batch: ProduceBatch) -> bool:
        """Whether no batch before it is unacknowledged."""
        others = [*self.waiting, *self.in_flight]
        return all(batch.place <= other.place for other in others)
