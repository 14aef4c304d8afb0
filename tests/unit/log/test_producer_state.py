from __future__ import annotations

import pytest

from tidelog.log.log_errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
)
from tidelog.log.producer_state import ABORT_MARKER, COMMIT_MARKER, ProducerStateTable
from tidelog.log.segment.transaction_index import AbortedTxn

PRODUCER = 7
LAST_SEQUENCE = 2**31 - 1


class Story:
    """A table and a log end, so that a test can speak of batches only."""

    def __init__(self) -> None:
        self.table = ProducerStateTable()
        self.next_offset = 0

    def send(
        self,
        sequence: int,
        count: int = 1,
        *,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        transactional: bool = False,
        timestamp: int = 1000,
        check_sequence: bool = True,
    ) -> int:
        """The batch's base offset, or that of the batch it repeats."""
        last_sequence = (sequence + count - 1) % 2**31
        duplicate = self.table.check_data_batch(
            producer_id, epoch, sequence, last_sequence, transactional, check_sequence
        )
        if duplicate is not None:
            return duplicate.base_offset
        base_offset = self.next_offset
        self.next_offset += count
        self.table.add_data_batch(
            producer_id,
            epoch,
            sequence,
            last_sequence,
            base_offset,
            self.next_offset - 1,
            timestamp,
            transactional,
        )
        return base_offset

    def end(
        self,
        control_type: int,
        *,
        producer_id: int = PRODUCER,
        epoch: int = 0,
        coordinator_epoch: int = 0,
    ) -> AbortedTxn | None:
        self.table.check_marker(producer_id, epoch, coordinator_epoch)
        offset = self.next_offset
        self.next_offset += 1
        return self.table.add_marker(
            producer_id, epoch, coordinator_epoch, control_type, offset, 1000
        )

    def restart(self, now_ms: int = 1000) -> None:
        rows = list(self.table.rows())
        self.table = ProducerStateTable()
        self.table.load(rows, now_ms, expiration_ms=86_400_000)


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    assert Story().send(17) == 0


def test_sequences_go_on_without_gaps() -> None:
    story = Story()
    story.send(0, 3)
    assert story.send(3, 2) == 3
    with pytest.raises(OutOfOrderSequence):
        story.send(6)


def test_each_of_the_last_five_batches_is_recognised() -> None:
    story = Story()
    offsets = [story.send(number * 2, 2) for number in range(6)]
    assert [story.send(number * 2, 2) for number in range(1, 6)] == offsets[1:]
    assert story.next_offset == 12


def test_a_repeat_older_than_five_batches_is_out_of_order() -> None:
    story = Story()
    for sequence in range(6):
        story.send(sequence)
    with pytest.raises(OutOfOrderSequence):
        story.send(0)


def test_a_batch_that_overlaps_but_differs_is_no_duplicate() -> None:
    story = Story()
    story.send(0, 4)
    with pytest.raises(OutOfOrderSequence):
        story.send(0, 3)


def test_sequences_wrap_to_zero() -> None:
    story = Story()
    story.send(LAST_SEQUENCE - 1, 2)
    assert story.send(0) == 2
    assert story.send(0) == 2
    story.send(1)


def test_one_batch_may_wrap_inside() -> None:
    story = Story()
    story.send(LAST_SEQUENCE, 3)
    assert story.send(LAST_SEQUENCE, 3) == 0
    assert story.send(2) == 3


def test_a_duplicate_is_recognised_after_the_wrap() -> None:
    story = Story()
    story.send(LAST_SEQUENCE)
    story.send(0)
    assert story.send(LAST_SEQUENCE) == 0


def test_an_older_epoch_is_fenced() -> None:
    story = Story()
    story.send(0, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        story.send(1, epoch=2)


def test_a_newer_epoch_starts_at_zero() -> None:
    story = Story()
    story.send(0)
    with pytest.raises(OutOfOrderSequence):
        story.send(1, epoch=1)
    assert story.send(0, epoch=1) == 1


def test_a_newer_epoch_forgets_the_batches_of_the_old_one() -> None:
    story = Story()
    story.send(0)
    story.send(0, epoch=1)
    assert [batch.base_offset for batch in story.table.producers[PRODUCER].batches] == [1]


def test_a_coordinators_append_skips_the_sequence_check() -> None:
    story = Story()
    story.send(0)
    assert story.send(0, check_sequence=False) == 1


def test_checks_change_nothing() -> None:
    story = Story()
    story.table.check_data_batch(PRODUCER, 0, 0, 0, True, True)
    assert not story.table.producers
    assert story.table.first_unstable_offset == -1


def test_only_the_last_batch_survives_a_restart() -> None:
    story = Story()
    for sequence in range(0, 6, 2):
        story.send(sequence, 2)
    story.restart()
    assert story.send(4, 2) == 4
    with pytest.raises(OutOfOrderSequence):
        story.send(2, 2)
    assert story.send(6) == 6


def test_a_wrapped_batch_survives_a_restart() -> None:
    story = Story()
    story.send(LAST_SEQUENCE - 1, 4)
    story.restart()
    assert story.send(LAST_SEQUENCE - 1, 4) == 0


def test_an_idle_producer_expires_but_not_inside_a_transaction() -> None:
    story = Story()
    story.send(0, producer_id=1, timestamp=1000)
    story.send(0, producer_id=2, timestamp=1001)
    story.send(0, producer_id=3, timestamp=1000, transactional=True)
    story.table.remove_expired(now_ms=6000, expiration_ms=5000)
    assert set(story.table.producers) == {2, 3}


def test_expired_producers_are_not_loaded() -> None:
    story = Story()
    story.send(0)
    story.restart(now_ms=1000 + 86_400_000)
    assert not story.table.producers


def test_an_open_transaction_bounds_what_is_stable() -> None:
    story = Story()
    story.send(0)
    first = story.send(1, transactional=True)
    story.send(2, transactional=True)
    assert story.table.first_unstable_offset == first
    assert story.table.has_open_transaction(PRODUCER)


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    story = Story()
    story.send(0, transactional=True)
    with pytest.raises(InvalidTxnState):
        story.send(1)


def test_a_transaction_stays_unstable_until_its_marker_is_replicated() -> None:
    story = Story()
    story.send(0, transactional=True)
    assert story.end(COMMIT_MARKER) is None
    assert story.table.first_unstable_offset == 0
    story.table.high_watermark_moved(1)
    assert story.table.first_unstable_offset == 0
    story.table.high_watermark_moved(2)
    assert story.table.first_unstable_offset == -1


def test_an_abort_goes_into_the_transaction_index() -> None:
    story = Story()
    story.send(0, 2, transactional=True)
    assert story.end(ABORT_MARKER) == AbortedTxn(PRODUCER, 0, 2, 3)


def test_the_stable_offset_of_an_abort_is_the_next_open_transaction() -> None:
    story = Story()
    story.send(0, producer_id=1, transactional=True)
    story.send(0, producer_id=2, transactional=True)
    assert story.end(ABORT_MARKER, producer_id=1) == AbortedTxn(1, 0, 2, 1)
    assert story.table.first_unstable_offset == 0


def test_a_marker_without_a_transaction_ends_none() -> None:
    assert Story().end(ABORT_MARKER) is None


def test_a_marker_of_a_newer_epoch_fences_and_restarts_the_sequence() -> None:
    story = Story()
    story.send(0, transactional=True)
    story.end(ABORT_MARKER, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        story.send(1, epoch=0, transactional=True)
    with pytest.raises(OutOfOrderSequence):
        story.send(1, epoch=1, transactional=True)
    story.send(0, epoch=1, transactional=True)


def test_a_marker_of_the_same_epoch_keeps_the_sequence() -> None:
    story = Story()
    story.send(0, 3, transactional=True)
    story.end(COMMIT_MARKER)
    assert story.send(3, transactional=True) == 4


def test_an_older_coordinator_is_fenced() -> None:
    story = Story()
    story.end(COMMIT_MARKER, coordinator_epoch=4)
    with pytest.raises(CoordinatorFenced):
        story.end(COMMIT_MARKER, coordinator_epoch=3)


def test_open_transactions_survive_a_restart_in_order() -> None:
    story = Story()
    story.send(0, producer_id=9, transactional=True)
    story.send(0, producer_id=3, transactional=True)
    story.restart()
    assert story.table.first_unstable_offset == 0
    assert story.end(ABORT_MARKER, producer_id=9) == AbortedTxn(9, 0, 2, 1)


@pytest.mark.parametrize(
    ("epoch", "sequence", "has_passed"),
    [
        (1, 10, True),
        (1, 12, True),
        (1, 13, False),
        (0, 99, True),
        (2, 0, False),
    ],
    ids=["held", "last held", "next", "older epoch", "newer epoch"],
)
def test_what_a_log_has_passed(epoch: int, sequence: int, has_passed: bool) -> None:
    story = Story()
    assert not story.table.has_passed(PRODUCER, epoch, sequence)
    story.send(10, 3, epoch=1)
    assert story.table.has_passed(PRODUCER, epoch, sequence) is has_passed


def test_an_epoch_that_only_a_marker_named_has_passed_no_sequence() -> None:
    story = Story()
    story.end(COMMIT_MARKER, epoch=1)
    assert not story.table.has_passed(PRODUCER, 1, 0)
    assert story.table.has_passed(PRODUCER, 0, 0)
