"""Entries of transaction indexes, where a cleaner has taken the records of the transactions."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.cleaning import clean, write
from tests.support.log_builder import ABORT, COMMIT, LogWorkshop, end_txn
from tidelog.config.topic import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.log.transaction_index_check import TransactionReplay
from tidelog.record.kernel import ProducerBatch

COMPACTED = LogConfig(compact=True, min_cleanable_dirty_ratio=0.0)
PRODUCER = 7


def data(offset: int, producer: int = PRODUCER) -> ProducerBatch:
    return ProducerBatch(producer, 0, 0, 0, offset, offset, 0, 0x10, 0, -1, -1)


def marker(offset: int, control_type: int, producer: int = PRODUCER) -> ProducerBatch:
    return ProducerBatch(producer, 0, -1, -1, offset, offset, 0, 0x30, 0, control_type, 0)


def replayed(*rows: ProducerBatch) -> TransactionReplay:
    found = TransactionReplay(ProducerStateTable())
    for row in rows:
        found.see(row)
    return found


def entry(first: int, last: int, stable: int | None = None) -> AbortedTxn:
    return AbortedTxn(PRODUCER, first, last, last + 1 if stable is None else stable)


def test_what_is_still_there_is_told() -> None:
    found = replayed(data(4), data(6), marker(8, ABORT))
    assert found.told == [entry(4, 8)]


def test_a_transaction_with_nothing_left_but_its_marker_is_borne_out() -> None:
    found = replayed(data(1), marker(3, COMMIT), marker(8, ABORT))
    assert found.told == []
    assert [found.bears_out(entry(first, 8)) for first in range(9)] == [False] * 4 + [True] * 5


def test_one_that_began_before_what_is_left_of_it_is_borne_out() -> None:
    found = replayed(marker(3, ABORT), data(6), marker(8, ABORT))
    assert [found.bears_out(entry(first, 8)) for first in (3, 4, 6, 7)] == [
        False,
        True,
        True,
        False,
    ]


def test_there_must_be_a_marker_of_that_producer_and_it_must_abort() -> None:
    found = replayed(marker(8, COMMIT), marker(9, ABORT, producer=8))
    assert not found.bears_out(entry(7, 8))
    assert not found.bears_out(entry(7, 9))


def test_readers_are_not_sent_home_while_another_transaction_is_open() -> None:
    found = replayed(data(5, producer=8), marker(8, ABORT))
    assert [found.bears_out(entry(7, 8, stable)) for stable in (4, 5, 6, 9)] == [
        True,
        True,
        False,
        False,
    ]


def test_what_a_snapshot_knows_counts_too() -> None:
    table = ProducerStateTable()
    for row in (data(1), marker(2, COMMIT), data(4), data(5, producer=8), data(6, producer=8)):
        table.replay(row)
    found = TransactionReplay(table)
    found.see(marker(8, ABORT))
    found.see(marker(9, ABORT, producer=8))
    assert found.told == [entry(4, 8, 5), AbortedTxn(8, 5, 9, 10)]
    assert not found.bears_out(entry(3, 8, 5))


# In a log


def cleaned_log(workshop: LogWorkshop) -> PartitionLog:
    """Two aborted transactions and a committed one between, of one producer."""
    log = workshop.create(COMPACTED)
    for number, end in enumerate((ABORT, COMMIT, ABORT)):
        write(
            log,
            (b"%d" % number, b"x"),
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        end_txn(log, end, producer_id=PRODUCER)
    write(
        log,
        (b"a", b"x"),
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=3,
        is_transactional=True,
    )
    end_txn(log, COMMIT, producer_id=PRODUCER)
    log.roll()
    clean(log, workshop.clock)
    write(log, (b"b", b"x"))
    return log


def aborted_at(log: PartitionLog, offset: int) -> list[AbortedTxn]:
    end = log.log_end_offset
    result = log.read(offset, 10_000, up_to_offset=end, min_one_batch=True)
    return log.aborted_transactions(offset, result)


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


def test_the_index_of_a_cleaned_segment_is_left_alone_after_a_restart(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = cleaned_log(workshop)
    path = Path(log.segments[0].txn_index.path)
    before = path.read_bytes()
    again = workshop.reopen_cleanly(log)
    assert aborted_at(again, 0) == [entry(0, 1), entry(4, 5)]
    assert path.read_bytes() == before
    assert caplog.text == ""


def test_an_entry_that_would_hide_committed_records_is_not_believed(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = cleaned_log(workshop)
    path = Path(log.segments[0].txn_index.path)
    log.flush()
    log.close()
    content = bytearray(path.read_bytes())
    struct.pack_into(">q", content, 34 + 10, 2)  # as if the second one held the committed one
    path.write_bytes(content)
    end = log.log_end_offset
    again = workshop.load(COMPACTED, clean=True, recovery_point=end, high_watermark=end)
    assert aborted_at(again, 0) == [entry(0, 1)]
    assert "writing it anew" in caplog.text
