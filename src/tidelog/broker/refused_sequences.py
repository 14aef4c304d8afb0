"""Batches that could not be taken yet, so that those sent behind them are not taken either.

A producer has several requests in flight. The first comes before this broker leads the partition,
or while too few replicas are in sync, and is refused; the second comes a moment later, when it
could be taken, but would leave a gap. To call that OUT_OF_ORDER_SEQUENCE_NUMBER, as Kafka does, is
true and does harm: librdkafka then begins a new epoch and sends all it is not sure of again, in all
partitions, and where one of these batches has arrived nevertheless, it is there twice. And a
producer that the log does not know may begin with any sequence, so the second would be taken, and
the first be out of order for good. So the second is refused as the first was; the client sends both
again.

A row counts while the log still waits for just that batch, and for KEPT_S at most: by then a client
has given up what it had in flight.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.record.batch import HEADER_SIZE, MAGIC_POSITION

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
KEPT_S: Final = 30.0
ROWS_MAX: Final = 1_000
MAGIC: Final = 2
SEQUENCES: Final = 1 << 31
PRODUCER_POSITION: Final = 43
_PRODUCER = Struct(">qhi")  # producer_id, producer_epoch, base_sequence


class _Refused(NamedTuple):
    base_sequence: int
    code: ErrorCode
    expires_at: float


class RefusedSequences:
    """The first one refused of each producer and partition. Touched only on the broker loop."""

    __slots__ = ("_clock", "_rows")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[tuple[str, int, int, int], _Refused] = {}  # oldest first

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
        producer = _producer(records) if code in SENT_AGAIN else None
        if producer is None:
            return
        producer_id, epoch, base_sequence = producer
        key = (topic, index, producer_id, epoch)
        now = self._forget_old()
        earlier = self._rows.get(key)
        if (
            earlier is not None
            and _is_after(base_sequence, earlier.base_sequence)
            and (producers is None or producers.awaits(producer_id, epoch, earlier.base_sequence))
        ):
            return
        self._rows.pop(key, None)
        if len(self._rows) >= ROWS_MAX:
            del self._rows[next(iter(self._rows))]
        self._rows[key] = _Refused(base_sequence, code, now + KEPT_S)

    def code_for(
        self, topic: str, index: int, records: memoryview, producers: ProducerStateTable
    ) -> ErrorCode | None:
        """Why the records may not be taken: those before them were not. None if they may."""
        self._forget_old()
        producer = _producer(records)
        if producer is None:
            return None
        producer_id, epoch, base_sequence = producer
        key = (topic, index, producer_id, epoch)
        refused = self._rows.get(key)
        if refused is None:
            return None
        if base_sequence == refused.base_sequence or not producers.awaits(
            producer_id, epoch, refused.base_sequence
        ):
            del self._rows[key]
            return None
        is_behind = _is_after(base_sequence, refused.base_sequence)
        return refused.code if is_behind else None  # else it was taken, and is sent again

    def _forget_old(self) -> float:
        """The time it is."""
        now = self._clock.monotonic()
        while self._rows:
            oldest = next(iter(self._rows))
            if self._rows[oldest].expires_at > now:
                break
            del self._rows[oldest]
        return now


def _producer(records: memoryview | None) -> tuple[int, int, int] | None:
    """(producer id, epoch, base sequence) of an idempotent producer's batch."""
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
        return None
    producer_id, epoch, base_sequence = _PRODUCER.unpack_from(records, PRODUCER_POSITION)
    return None if producer_id < 0 or base_sequence < 0 else (producer_id, epoch, base_sequence)


def _is_after(sequence: int, other: int) -> bool:
    """Sequences wrap."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2
