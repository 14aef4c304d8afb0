"""The sequences of one partition: what an idempotent producer must remember to number its batches.

Batches get their sequences when they are drained and keep them over retries. In flight are all that
have a sequence and no answer that settles them: on the wire, or waiting to be sent again. Where the
epoch is bumped, those in flight are numbered anew from 0; where a transactional batch has failed
for good, those behind it move up into the gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.record.batch import SEQUENCES, increment_sequence, is_sequence_after
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.client.producer.batch import ProducerBatch

NONE_ACKED: Final = -1


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def __str__(self) -> str:
        return f"producer id {self.producer_id} with epoch {self.producer_epoch}"


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class PartitionSequences:
    """Touched under the producer's lock."""

    __slots__ = (
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "next_order",
        "next_sequence",
        "producer",
    )

    def __init__(self) -> None:
        self.producer = NO_PRODUCER  # whose sequences these are
        self.next_sequence = 0
        self.next_order = 0
        self.last_acked_sequence = NONE_ACKED
        self.last_acked_offset = -1
        self.in_flight: list[ProducerBatch] = []  # by order, so by sequence

    @property
    def first_in_flight(self) -> ProducerBatch | None:
        return self.in_flight[0] if self.in_flight else None

    def number(self, batch: ProducerBatch, *, is_transactional: bool) -> None:
        """Gives a batch that was never sent its sequence."""
        batch.set_producer(*self.producer, self.next_sequence, is_transactional)
        self.next_sequence = increment_sequence(self.next_sequence, batch.records_count)
        self._add(batch)

    def _add(self, batch: ProducerBatch) -> None:
        batch.order = self.next_order
        self.next_order += 1
        self.in_flight.append(batch)

    def replace(self, batch: ProducerBatch, halves: tuple[ProducerBatch, ProducerBatch]) -> None:
        """A batch that was too large, by its halves."""
        if batch not in self.in_flight:
            return
        place = self.in_flight.index(batch)
        self.in_flight[place : place + 1] = halves
        # Orders grow by one a batch, so there is no room between two: all get new ones.
        for each in self.in_flight:
            each.order = self.next_order
            self.next_order += 1

    def remove(self, batch: ProducerBatch) -> None:
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def acknowledge(self, last_sequence: int, last_offset: int) -> None:
        if self.last_acked_sequence == NONE_ACKED or is_sequence_after(
            last_sequence, self.last_acked_sequence
        ):
            self.last_acked_sequence = last_sequence
        self.last_acked_offset = max(self.last_acked_offset, last_offset)

    def is_next(self, sequence: int) -> bool:
        """Whether it follows the last one that was acknowledged."""
        return sequence == increment_sequence(self.last_acked_sequence, 1)

    def start_at_beginning(self, producer: ProducerIdAndEpoch) -> None:
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer(*producer, sequence)
            sequence += batch.records_count
        self.producer = producer
        self.next_sequence = sequence
        self.last_acked_sequence = NONE_ACKED

    def close_gap(self, failed: ProducerBatch) -> None:
        """The broker refused a batch for good, so the next one takes its sequence."""
        self.next_sequence = (self.next_sequence - failed.records_count) % SEQUENCES
        for batch in self.in_flight:
            if batch.order > failed.order:
                moved = (batch.base_sequence - failed.records_count) % SEQUENCES
                batch.reset_producer(batch.producer_id, batch.producer_epoch, moved)
