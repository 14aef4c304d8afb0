"""After a restart the batches that a producer's snapshot does not name are found in the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.log_builder import COMMIT, LogWorkshop, end_txn, produce
from tidelog.config.topic import LogConfig
from tidelog.log import producer_loading
from tidelog.log.log_errors import OutOfOrderSequence
from tidelog.log.partition_log import LogAppendInfo, PartitionLog

PRODUCER = 7
OTHER = 8


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


def send(log: PartitionLog, sequence: int, *, size: int = 10, epoch: int = 0) -> LogAppendInfo:
    return produce(log, b"x" * size, producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence)


def test_each_of_the_last_five_batches_is_known_after_a_clean_restart(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    first = [send(log, sequence) for sequence in range(7)]
    log = workshop.reopen_cleanly(log)

    again = [send(log, sequence) for sequence in range(2, 7)]

    assert [info.is_duplicate for info in again] == [True] * 5
    assert [info.base_offset for info in again] == [info.base_offset for info in first[2:]]
    assert log.log_end_offset == 7


def test_what_is_older_than_five_batches_is_still_out_of_order(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for sequence in range(7):
        send(log, sequence)
    log = workshop.reopen_cleanly(log)

    with pytest.raises(OutOfOrderSequence):
        send(log, 1)


def test_a_gap_is_still_a_gap(workshop: LogWorkshop) -> None:
    log = workshop.create()
    send(log, 0)
    log = workshop.reopen_cleanly(log)

    with pytest.raises(OutOfOrderSequence):
        send(log, 2)
    assert not send(log, 1).is_duplicate


def test_batches_of_others_and_of_earlier_epochs_are_not_taken_for_its_own(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    for sequence in range(3):
        send(log, sequence)
        produce(log, b"y", producer_id=OTHER, producer_epoch=1, sequence=sequence)
    send(log, 0, epoch=1)
    send(log, 1, epoch=1)
    log = workshop.reopen_cleanly(log)

    with pytest.raises(OutOfOrderSequence):
        send(log, 3, epoch=1)
    assert send(log, 0, epoch=1).base_offset == 6
    assert send(log, 1, epoch=1).base_offset == 7


def test_markers_are_no_batches_of_their_producer(workshop: LogWorkshop) -> None:
    def send_within_transaction(sequence: int) -> int:
        info = produce(
            log,
            b"x",
            producer_id=PRODUCER,
            producer_epoch=0,
            sequence=sequence,
            transactional=True,
        )
        return info.base_offset

    log = workshop.create()
    first = send_within_transaction(0)
    end_txn(log, COMMIT, producer_id=PRODUCER)
    second = send_within_transaction(1)
    log = workshop.reopen_cleanly(log)

    assert [send_within_transaction(sequence) for sequence in (0, 1)] == [first, second]


def test_batches_are_found_in_the_segments_before_the_last(workshop: LogWorkshop) -> None:
    log = workshop.create(replace(LogConfig(), segment_bytes=400))
    first = [send(log, sequence, size=200) for sequence in range(5)]
    assert len(log.segments) > 3
    log = workshop.reopen_cleanly(log)

    again = [send(log, sequence, size=200) for sequence in range(5)]

    assert [info.base_offset for info in again] == [info.base_offset for info in first]


def test_only_the_end_of_the_log_is_looked_through(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_loading, "RECALLED_BYTES", 2_000)
    log = workshop.create(replace(LogConfig(), index_interval_bytes=100))
    for sequence in range(4):
        send(log, sequence, size=1_000)
    log = workshop.reopen_cleanly(log)

    with pytest.raises(OutOfOrderSequence):
        send(log, 0, size=1_000)
    assert send(log, 2, size=1_000).is_duplicate


def send_in_txn(log: PartitionLog, sequence: int, *, epoch: int = 0) -> LogAppendInfo:
    return produce(
        log, producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence, transactional=True
    )


def log_with_a_marker_first(workshop: LogWorkshop) -> PartitionLog:
    """Sequences 0 to 2 are deleted, the marker behind them is left, and the broker is killed."""
    log = workshop.create()
    for sequence in range(3):
        send_in_txn(log, sequence)
    marker = end_txn(log, COMMIT, producer_id=PRODUCER)
    log.maybe_increment_log_start_offset(marker.base_offset)
    log.flush()
    return workshop.load(log_start_offset=marker.base_offset, high_watermark=4)


def test_a_producer_goes_on_though_nothing_but_its_marker_is_left(workshop: LogWorkshop) -> None:
    """However often the broker is stopped before it does."""
    log = workshop.reopen_cleanly(log_with_a_marker_first(workshop))

    assert send_in_txn(log, 3).base_offset == 4
    with pytest.raises(OutOfOrderSequence):
        send_in_txn(log, 5)
    assert send_in_txn(log, 4).base_offset == 5


def test_the_next_epoch_begins_at_0_though_nothing_but_a_marker_is_left(
    workshop: LogWorkshop,
) -> None:
    log = log_with_a_marker_first(workshop)

    with pytest.raises(OutOfOrderSequence):
        send_in_txn(log, 3, epoch=1)
    end_txn(log, COMMIT, producer_id=PRODUCER, producer_epoch=1)
    with pytest.raises(OutOfOrderSequence):
        send_in_txn(log, 3, epoch=1)


def test_a_marker_before_all_batches_lets_no_gap_pass(workshop: LogWorkshop) -> None:
    """Nothing of the log has been deleted, so the producer has sent nothing."""
    log = workshop.create()
    end_txn(log, COMMIT, producer_id=PRODUCER)
    for each in (log, workshop.load(high_watermark=1)):
        with pytest.raises(OutOfOrderSequence):
            send_in_txn(each, 3)


def test_a_follower_that_got_a_marker_only_lets_the_producer_go_on(
    workshop: LogWorkshop, tmp_path: Path
) -> None:
    leader = log_with_a_marker_first(workshop)
    read = leader.read(3, 1 << 20, up_to_offset=4, min_one_batch=True)
    assert read.records is not None
    (tmp_path / "follower").mkdir()
    log = LogWorkshop(tmp_path / "follower").create(start_offset=3)
    log.append_as_follower(memoryview(bytearray(read.records.read())), 3)

    assert send_in_txn(log, 3).base_offset == 4


def test_a_producer_goes_on_if_its_marker_comes_when_all_its_batches_are_gone(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    send_in_txn(log, 0)
    log.maybe_increment_log_start_offset(1)
    log.flush()
    log = workshop.load(log_start_offset=1, high_watermark=1)
    end_txn(log, COMMIT, producer_id=PRODUCER)

    assert send_in_txn(log, 1).base_offset == 2
