"""The sequences of an idempotent producer: what it must remember to number its batches.

`PartitionSequences` has those of one partition, `ProducerSequences` those of all, and decides what
becomes of them when a batch fails or a broker refuses it.

Batches get their sequences when they are drained and keep them over retries. In flight are all that
have a sequence and no answer that settles them: on the wire, or waiting to be sent again. Where the
epoch is bumped, those in flight are numbered anew from 0; where a transactional batch has failed
for good, those behind it move up into the gap.

A broker knows the last five batches of a producer again. An answer may be lost although the batch
was written, and those behind it may be written and acknowledged meanwhile, some by another leader.
So from the first batch that is in flight to the last that was ever sent there are at most five:
otherwise the first, sent again, would be taken for a gap for ever.

Some errors leave a gap. An idempotent producer without transactions then needs the next epoch
(`must_bump_epoch`), and the batches of the partition are numbered anew with it (`bump_epoch`). A
transactional one aborts its transaction, which the transaction manager sees to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.record.batch import (
    NO_SEQUENCE,
    SEQUENCES,
    increment_sequence,
    is_sequence_after,
)
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.client.errors import ClientError
    from tidelog.client.producer.batch import ProducerBatch
    from tidelog.types import TopicPartition

NONE_ACKED: Final = -1
BATCHES_KNOWN_AGAIN: Final = 5
EPOCH_MAX: Final = (1 << 15) - 1


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

    @property
    def has_room(self) -> bool:
        """Whether the broker would know the first in flight again after one more batch."""
        if not self.in_flight:
            return True
        return self.next_order - self.in_flight[0].order < BATCHES_KNOWN_AGAIN

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
        """Puts the halves of a batch that was too large in its place."""
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


class ProducerSequences:
    """Touched under the producer's lock."""

    def __init__(self, *, is_transactional: bool) -> None:
        self.producer = NO_PRODUCER  # who numbers batches from now on
        self.must_bump_epoch = False
        self._is_transactional = is_transactional
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        # Partitions where a batch that had been sent expired, and the sequence after it: whether
        # the broker has it is known when one behind it is answered. Nothing new is sent till then.
        self._unresolved: dict[TopicPartition, int] = {}
        self._to_renumber: set[TopicPartition] = set()

    def of(self, partition: TopicPartition) -> PartitionSequences:
        sequences = self._partitions.get(partition)
        if sequences is None:
            sequences = self._partitions[partition] = PartitionSequences()
        return sequences

    def reset(self) -> None:
        """The producer has a new epoch and nothing in flight."""
        self._partitions.clear()
        self._unresolved.clear()

    # Batches out

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the first batch of a queue may be drained now, as far as sequences go."""
        sequences = self.of(batch.partition)
        if not batch.has_sequence:
            if sequences.in_flight and sequences.producer != self.producer:
                # Those in flight have another epoch: one that begins at 0 could overtake them.
                return False
            return batch.partition not in self._unresolved and sequences.has_room
        # One that is sent again: only the first of those in flight, so that they stay in order.
        first = sequences.first_in_flight
        return first is None or first is batch

    def number(self, batch: ProducerBatch) -> None:
        """Gives a drained batch its sequence, unless it has one from before."""
        sequences = self.of(batch.partition)
        if batch.base_sequence != NO_SEQUENCE:
            batch.last_acked_when_sent = sequences.last_acked_sequence
            return
        if sequences.producer != self.producer and not sequences.in_flight:
            sequences.start_at_beginning(self.producer)
        sequences.number(batch, is_transactional=self._is_transactional)
        batch.last_acked_when_sent = sequences.last_acked_sequence

    def split(self, batch: ProducerBatch, halves: tuple[ProducerBatch, ProducerBatch]) -> None:
        self.of(batch.partition).replace(batch, halves)

    # Answers

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        sequences = self.of(batch.partition)
        if (batch.producer_id, batch.producer_epoch) != sequences.producer:
            return  # it expired, and its sequences with it
        last_offset = base_offset + batch.records_count - 1 if base_offset >= 0 else -1
        sequences.acknowledge(batch.last_sequence, last_offset)
        sequences.remove(batch)

    def remove(self, batch: ProducerBatch) -> None:
        """The batch is no longer in flight."""
        self.of(batch.partition).remove(batch)

    def failed(self, batch: ProducerBatch, error: ClientError, *, is_sequence_free: bool) -> None:
        """A batch that was removed. `is_sequence_free`: the broker has surely not written it."""
        if not batch.has_sequence:
            return
        if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self._is_transactional:
            self._bump_epoch_for(batch.partition)
        elif error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            # The broker knows nothing of this producer, so it takes a batch with sequence 0.
            self._partitions.pop(batch.partition, None)
            self._unresolved.pop(batch.partition, None)
        elif is_sequence_free and not self._is_transactional:
            self._bump_epoch_for(batch.partition)
        elif is_sequence_free:
            self.of(batch.partition).close_gap(batch)

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether a batch that a broker refused may be sent again, renumbered if need be."""
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown_producer(batch, log_start_offset)
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._can_retry_out_of_order(batch)
        return code.retriable

    def _can_retry_unknown_producer(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        if log_start_offset == -1 or batch.has_been_reset:
            # The broker cannot say why now; or it answers what was sent before the reset.
            return True
        sequences = self.of(batch.partition)
        if not self._is_transactional:
            self._bump_epoch_for(batch.partition)
            return True
        if sequences.last_acked_offset < log_start_offset:
            # Retention took the producer's last records and with them what the broker knew of it.
            sequences.start_at_beginning(self.producer)
            return True
        return False

    def _can_retry_out_of_order(self, batch: ProducerBatch) -> bool:
        partition = batch.partition
        is_unresolved = partition in self._unresolved
        sequences = self.of(partition)
        # The answer may have been made before a batch that is acknowledged by now was written:
        # after a change of leaders, two connections are in use.
        was_next = (
            sequences.is_next(batch.base_sequence)
            and batch.last_acked_when_sent == sequences.last_acked_sequence
        )
        if not is_unresolved and (batch.has_been_reset or not was_next):
            # A batch before it was on its way: this one follows when that one is written.
            return True
        if self._is_transactional:
            return False
        if not is_unresolved or self._unresolved[partition] == batch.base_sequence:
            # There is a gap that nobody will fill.
            self._bump_epoch_for(partition)
        return True

    # Gaps

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """A batch that was sent has expired, and nobody knows whether the broker has it."""
        known = self._unresolved.get(batch.partition, NO_SEQUENCE)
        self._unresolved[batch.partition] = max(known, batch.next_sequence)

    def resolve(self) -> list[TopicPartition]:
        """Partitions where all is answered and a gap is left. A producer without transactions has
        its epoch bumped for them."""
        given_up = []
        for partition in list(self._unresolved):
            sequences = self.of(partition)
            if sequences.in_flight:
                continue
            if not sequences.is_next(sequences.next_sequence):
                given_up.append(partition)
                if not self._is_transactional:
                    self._bump_epoch_for(partition)
            del self._unresolved[partition]
        return given_up

    def _bump_epoch_for(self, partition: TopicPartition) -> None:
        self.must_bump_epoch = True
        self._to_renumber.add(partition)

    def bump_epoch(self) -> None:
        """As a producer without transactions does on its own. After the last epoch it needs
        another producer id."""
        producer_id, producer_epoch = self.producer
        if producer_epoch == EPOCH_MAX:
            self.producer = NO_PRODUCER
        elif producer_id != NO_PRODUCER_ID:
            self.producer = ProducerIdAndEpoch(producer_id, producer_epoch + 1)
        for partition in self._to_renumber:
            self.of(partition).start_at_beginning(self.producer)
            self._unresolved.pop(partition, None)
        self._to_renumber.clear()
        self.must_bump_epoch = False
