"""Batches that could not be taken yet, so that those sent behind them are not taken either.

A producer has several requests in flight. The first comes before this broker leads the partition,
or while too few replicas are in sync, and is refused; the second comes a moment later, when it
could be taken, but would leave a gap. To call that OUT_OF_ORDER_SEQUENCE_NUMBER, as Kafka does, is
true and does harm: librdkafka then begins a new epoch and sends all it is not sure of again, in all
partitions, and where one of these batches has arrived nevertheless, it is there twice. And a
producer that the log does not know may begin with any sequence, so the second would be taken, and
the first be out of order for good. So the second is refused as the first was, and the client sends
both again, the first one first.

A client may give the first one up. Then what was refused behind it comes again without it: from
there on the log judges, as it does after KEPT_S, and once it holds what was refused, or later ones.

Not here: UNKNOWN_TOPIC_ID, after which nobody knows which partition the batch was for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

from tidelog.errors import ErrorCode
from tidelog.record.batch import (
    is_sequence_after,
    is_v2,
    producer_of,
)

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.log.producer_state import ProducerStateTable

SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
KEPT_S: Final = 10.0
ROWS_MAX: Final = 1_000

Key = tuple[str, int, int, int]  # topic, partition, producer id, its epoch


class _Refused:
    __slots__ = ("base_sequence", "code", "expires_at", "last_behind")

    def __init__(self, base_sequence: int, code: ErrorCode, expires_at: float) -> None:
        self.base_sequence = base_sequence
        self.code = code
        self.expires_at = expires_at
        self.last_behind = base_sequence  # the last one that was refused because of it

    def holds_back(self, base_sequence: int) -> bool:
        """Whether that one is behind it, and comes for the first time since."""
        if not is_sequence_after(base_sequence, self.last_behind):
            return False
        self.last_behind = base_sequence
        return True


class RefusedSequences:
    """The first one refused of each producer and partition. Touched only on the broker loop."""

    __slots__ = ("_clock", "_rows")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[Key, _Refused] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._rows)

    def note(
        self,
        topic: str,
        index: int,
        records: memoryview | None,
        code: ErrorCode,
        producers: ProducerStateTable | None,
    ) -> None:
        """The records are refused; with some codes the client sends them again. `producers` are
        those of the partition, where it is hosted.
        """
        if code not in SENT_AGAIN or not _is_idempotent(records):
            return
        producer_id, epoch, base_sequence = producer_of(records)
        key = (topic, index, producer_id, epoch)
        now = self._clock.monotonic()
        earlier = self._current(key, producers, now)
        if earlier is not None and earlier.holds_back(base_sequence):
            return
        self._rows.pop(key, None)
        if len(self._rows) >= ROWS_MAX:
            del self._rows[next(iter(self._rows))]
        self._rows[key] = _Refused(base_sequence, code, now + KEPT_S)

    def refuse(
        self, topic: str, index: int, records: memoryview, producers: ProducerStateTable
    ) -> ErrorCode | None:
        """The code to refuse the records with, because those before them were; None: go on."""
        if not _is_idempotent(records):
            return None
        producer_id, epoch, base_sequence = producer_of(records)
        key = (topic, index, producer_id, epoch)
        refused = self._current(key, producers, self._clock.monotonic())
        if refused is None or is_sequence_after(refused.base_sequence, base_sequence):
            return None  # nothing is missing before it that was refused
        if refused.holds_back(base_sequence):
            return refused.code
        del self._rows[key]  # it comes again, or was given up
        return None

    def _current(
        self, key: Key, producers: ProducerStateTable | None, now: float
    ) -> _Refused | None:
        """Those that are too old, or made good, are forgotten."""
        while self._rows:
            oldest = next(iter(self._rows))
            if self._rows[oldest].expires_at > now:
                break
            del self._rows[oldest]
        refused = self._rows.get(key)
        if refused is None or producers is None:
            return refused
        if producers.has_passed(*key[2:], refused.base_sequence):
            del self._rows[key]
            return None
        return refused


def _is_idempotent(records: memoryview | None) -> TypeGuard[memoryview]:
    if records is None or not is_v2(records):
        return False
    producer_id, _, base_sequence = producer_of(records)
    return producer_id >= 0 and base_sequence >= 0
