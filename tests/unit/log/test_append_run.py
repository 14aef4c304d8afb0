"""Appends that share a write leave what appends one by one leave: files, state and outcomes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support import raw_batch
from tests.support.compiled_modules import fields_of
from tests.support.crashing_disk import CrashingDisk
from tests.support.log_builder import LogWorkshop, produce, read_all
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.append_run import LeaderAppend
from tidelog.log.log_errors import InvalidProducerEpoch, OutOfOrderSequence, StorageError
from tidelog.log.partition_log import LogAppendInfo, PartitionLog

NOW = 1_700_000_000_000
VERSION = 9


def appends_of(batches: Sequence[bytes]) -> list[LeaderAppend]:
    return [LeaderAppend(memoryview(bytearray(batch)), VERSION) for batch in batches]


def append_all(log: PartitionLog, batches: Sequence[bytes], epoch: int = 0) -> list[LeaderAppend]:
    appends = appends_of(batches)
    log.append_all_as_leader(appends, epoch)
    return appends


def append_each(log: PartitionLog, batches: Sequence[bytes], epoch: int = 0) -> list[LeaderAppend]:
    appends = appends_of(batches)
    for append in appends:
        try:
            append.outcome = log.append_as_leader(append.records, epoch, produce_version=VERSION)
        except KafkaError as error:
            append.outcome = error
    return appends


def told(appends: Sequence[LeaderAppend]) -> list[object]:
    """The outcomes, comparable."""
    found: list[object] = []
    for append in appends:
        outcome = append.outcome
        if isinstance(outcome, LogAppendInfo):
            found.append(fields_of(outcome))
        else:
            assert isinstance(outcome, KafkaError)
            found.append((outcome.code, outcome.message))
    return found


def state(log: PartitionLog) -> dict[str, Any]:
    segments = [
        {
            name: getattr(segment, name)
            for name in (
                "base_offset",
                "size",
                "max_timestamp",
                "offset_of_max_timestamp",
                "rolling_timestamp",
                "indexed_position",
                "index_full",
                "indexes_synced",
            )
        }
        for segment in log.segments
    ]
    producers = {
        producer_id: fields_of(entry) for producer_id, entry in log.producers.producers.items()
    }
    return {
        "segments": segments,
        "producers": producers,
        "unstable": log.producers.first_unstable_offset,
        "end": log.log_end_offset,
        "start": log.log_start_offset,
        "epochs": log.epochs.entries,
        "recovery point": log.recovery_point,
    }


def contents(workshop: LogWorkshop) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(workshop.folder.iterdir())}


def workshop_in(folder: Path) -> LogWorkshop:
    folder.mkdir()
    return LogWorkshop(folder)


def count_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the bytes of every write."""
    writes: list[int] = []
    real_pwrite = os.pwrite

    def pwrite(descriptor: int, data: Any, position: int) -> int:
        writes.append(len(data))
        return real_pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return writes


def numbered(count: int, **fields: Any) -> list[bytes]:
    return [
        raw_batch.batch(b"value %d" % each, base_timestamp=NOW, **fields) for each in range(count)
    ]


# What is shared


def test_a_hundred_batches_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWorkshop(tmp_path).create()
    produce(log)
    writes = count_writes(monkeypatch)
    appends = append_all(log, numbered(100))
    assert len(writes) == 1
    assert [append.outcome.base_offset for append in appends] == list(range(1, 101))  # type: ignore[union-attr]
    assert log.log_end_offset == 101


def test_batches_of_one_idempotent_producer_share_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogWorkshop(tmp_path).create()
    produce(log)
    writes = count_writes(monkeypatch)
    batches = [
        raw_batch.batch(b"x", base_timestamp=NOW, producer_id=7, producer_epoch=0, base_sequence=at)
        for at in range(8)
    ]
    appends = append_all(log, batches)
    assert len(writes) == 1
    assert all(isinstance(append.outcome, LogAppendInfo) for append in appends)
    assert log.producers.producers[7].last_sequence == 7


def test_index_entries_lie_where_single_appends_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LogConfig(index_interval_bytes=500)
    one, other = workshop_in(tmp_path / "a"), workshop_in(tmp_path / "b")
    batches = numbered(100)
    log = one.create(config)
    writes = count_writes(monkeypatch)
    append_all(log, batches)
    assert len(writes) == 2  # the first batch of a segment makes its files, alone
    append_each(other.create(config), batches)
    assert contents(one) == contents(other)
    assert log.active_segment.offset_index.entries > 5


def test_a_duplicate_of_a_batch_in_the_same_turn_gets_its_offset(tmp_path: Path) -> None:
    log = LogWorkshop(tmp_path).create()
    produce(log)
    batch = raw_batch.batch(
        b"x", base_timestamp=NOW, producer_id=7, producer_epoch=0, base_sequence=0
    )
    first, again = append_all(log, [batch, batch])
    assert isinstance(first.outcome, LogAppendInfo)
    assert isinstance(again.outcome, LogAppendInfo)
    assert (first.outcome.is_duplicate, again.outcome.is_duplicate) == (False, True)
    assert first.outcome.base_offset == again.outcome.base_offset == 1
    assert log.log_end_offset == 2


def test_a_gap_in_the_sequence_is_refused_and_those_beside_it_are_not(tmp_path: Path) -> None:
    log = LogWorkshop(tmp_path).create()
    produce(log)

    def of(sequence: int) -> bytes:
        return raw_batch.batch(
            b"x", base_timestamp=NOW, producer_id=7, producer_epoch=0, base_sequence=sequence
        )

    outcomes = [each.outcome for each in append_all(log, [of(0), of(5), of(1), numbered(1)[0]])]
    assert isinstance(outcomes[1], OutOfOrderSequence)
    assert [each.base_offset for each in outcomes if isinstance(each, LogAppendInfo)] == [1, 2, 3]


def test_a_new_epoch_of_a_producer_begins_anew_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    log = LogWorkshop(tmp_path).create()
    produce(log)

    def of(epoch: int, sequence: int) -> bytes:
        return raw_batch.batch(
            b"x", base_timestamp=NOW, producer_id=7, producer_epoch=epoch, base_sequence=sequence
        )

    batches = [of(0, 0), of(1, 1), of(1, 0), of(0, 1)]
    outcomes = [each.outcome for each in append_all(log, batches)]
    assert isinstance(outcomes[1], OutOfOrderSequence)
    assert isinstance(outcomes[3], InvalidProducerEpoch)
    assert [each.base_offset for each in outcomes if isinstance(each, LogAppendInfo)] == [1, 2]


# Against appends one by one


def random_batch(random: Random, sequences: dict[int, int], at: list[int]) -> bytes:
    at[0] += random.randint(-20, 40)
    payload = [random.randbytes(random.randint(0, 80)) for _ in range(random.randint(1, 4))]
    kind = random.random()
    if kind < 0.35:
        return raw_batch.batch(*payload, base_timestamp=at[0])
    if kind < 0.85:
        producer_id = random.choice((7, 8, 9))
        epoch, sequence = divmod(sequences[producer_id], 1000)
        choice = random.random()
        if choice < 0.12:
            sequence = max(sequence - random.randint(1, 3), 0)  # a duplicate, or nearly one
        elif choice < 0.2:
            sequence += random.randint(1, 3)
        elif choice < 0.25:
            epoch, sequence = epoch + random.choice((-1, 1)), 0
            sequences[producer_id] = max(epoch, 0) * 1000 + len(payload)
        else:
            sequences[producer_id] += len(payload)
        return raw_batch.batch(
            *payload,
            base_timestamp=at[0],
            producer_id=producer_id,
            producer_epoch=max(epoch, 0),
            base_sequence=sequence,
            attributes=0x10 if random.random() < 0.02 else 0,
        )
    bad = bytearray(raw_batch.batch(*payload, base_timestamp=at[0]))
    wrong = random.randint(0, 5)
    if wrong == 0:
        bad[-1] ^= 0xFF  # its checksum
    elif wrong == 1:
        bad = bad[: random.randint(0, len(bad) - 1)]
    elif wrong == 2:
        bad += raw_batch.batch(b"second", base_timestamp=at[0])
    elif wrong == 3:
        bad[7] = 9  # its base offset
    elif wrong == 4:
        return raw_batch.batch(b"large" * 400, base_timestamp=at[0])
    else:
        return raw_batch.batch(*payload, base_timestamp=at[0] - 10_000_000)
    return bytes(bad)


@pytest.mark.parametrize("seed", range(60))
def test_random_turns_leave_what_single_appends_leave(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    config = LogConfig(
        segment_bytes=random.choice([600, 2500, 100_000]),
        index_interval_bytes=random.choice([0, 1, 300, 4096]),
        segment_index_bytes=random.choice([48, 10 << 20]),
        segment_ms=random.choice([60, 604_800_000]),
        segment_jitter_ms=0,
        max_message_bytes=random.choice([300, 1 << 20]),
        compact=random.random() < 0.3,
        message_timestamp_type=random.choice(["CreateTime", "LogAppendTime"]),
        message_timestamp_before_max_ms=random.choice([5_000_000, 1 << 60]),
    )
    one, other = workshop_in(tmp_path / "a"), workshop_in(tmp_path / "b")
    log, twin = one.create(config), other.create(config)
    sequences = dict.fromkeys((7, 8, 9), 0)
    at, epoch = [NOW], 0
    for _ in range(12):
        batches = [random_batch(random, sequences, at) for _ in range(random.randint(1, 25))]
        epoch += random.random() < 0.2
        assert told(append_all(log, batches, epoch)) == told(append_each(twin, batches, epoch))
        assert state(log) == state(twin)
        assert contents(one) == contents(other)
        if random.random() < 0.2:
            for workshop in (one, other):
                workshop.clock.advance(ms=random.choice([50, 50]))
        if random.random() < 0.15:
            log.roll()
            twin.roll()
        if random.random() < 0.15:
            log.update_high_watermark(log.log_end_offset)
            twin.update_high_watermark(twin.log_end_offset)
            log, twin = one.reopen_cleanly(log), other.reopen_cleanly(twin)
    log.close()
    twin.close()
    assert contents(one) == contents(other)


# Failing writes


class FillingDisk:
    """Takes so many bytes more for log files, writes what fits, and then has no space."""

    def __init__(self, room_bytes: int, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        self.room_bytes = room_bytes
        self._code = code
        self._real_pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._pwrite)

    def _pwrite(self, descriptor: int, data: Any, position: int) -> int:
        room = max(self.room_bytes - position, 0)
        if not room and len(data):
            raise OSError(self._code, os.strerror(self._code))
        return self._real_pwrite(descriptor, bytes(data)[:room], position)


def test_a_disk_that_fills_at_any_byte_gives_each_its_own_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [*numbered(3), raw_batch.batch(b"longer" * 9, base_timestamp=NOW), *numbered(2)]
    first = len(numbered(1)[0])
    whole = first + sum(map(len, batches))
    for room in range(first, whole + 1, 7):
        one, other = workshop_in(tmp_path / f"a{room}"), workshop_in(tmp_path / f"b{room}")
        log, twin = one.create(), other.create()
        for each in (log, twin):
            append_each(each, numbered(1))
        with monkeypatch.context() as patch:
            FillingDisk(room, patch, errno.ENOSPC)
            outcomes = told(append_all(log, batches))
            assert outcomes == told(append_each(twin, batches))
        assert state(log) == state(twin)
        assert contents(one) == contents(other)
        good = sum(isinstance(each, dict) for each in outcomes)
        log.update_high_watermark(log.log_end_offset)
        assert len(read_all(log)) == 1 + good
        append_each(log, numbered(1))
        log.update_high_watermark(log.log_end_offset)
        assert len(read_all(log)) == 2 + good


def test_sequences_behind_a_batch_that_could_not_be_written_are_judged_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogWorkshop(tmp_path).create()
    produce(log)
    batches = [
        raw_batch.batch(
            b"x" * size, base_timestamp=NOW, producer_id=7, producer_epoch=0, base_sequence=at
        )
        for at, size in enumerate((1, 500, 1))
    ]
    FillingDisk(log.active_segment.size + 2 * len(batches[0]) + 9, monkeypatch, errno.ENOSPC)
    outcomes = [append.outcome for append in append_all(log, batches)]
    assert isinstance(outcomes[0], LogAppendInfo)
    assert isinstance(outcomes[1], StorageError)
    assert isinstance(outcomes[2], OutOfOrderSequence)


def test_a_write_that_failed_is_reported_though_each_alone_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = LogWorkshop(tmp_path)
    reports: list[str] = []
    workshop.environment.io_failed = lambda path, what, error: reports.append(what)
    log = workshop.create()
    produce(log)
    real_pwrite, failures = os.pwrite, [1]

    def pwrite(descriptor: int, data: Any, position: int) -> int:
        if failures:
            raise OSError(failures.pop() and errno.EIO, "Input/output error")
        return real_pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    appends = append_all(log, numbered(3))
    assert all(isinstance(append.outcome, LogAppendInfo) for append in appends)
    assert reports == ["append to"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = workshop_in(tmp_path / "a"), workshop_in(tmp_path / "b")
    log, twin = one.create(), other.create()
    append_each(twin, numbered(20))
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, bytes(data)[:11], at))
    append_all(log, numbered(20))
    assert contents(one) == contents(other)


# Power cuts


EVERYTHING = [b"turn %d value %d" % (turn, each) for turn in range(3) for each in range(12)]


def turns(log: PartitionLog, acked: list[bytes]) -> None:
    """Three turns of appends with a roll between; a turn is acked when it is written and synced."""
    for turn in range(3):
        values = EVERYTHING[turn * 12 : turn * 12 + 12]
        batches = [
            raw_batch.batch(
                value,
                base_timestamp=NOW,
                producer_id=each % 3 if each % 2 else -1,
                producer_epoch=0 if each % 2 else -1,
                base_sequence=(turn * 12 + each) // 6 if each % 2 else -1,
            )
            for each, value in enumerate(values)
        ]
        appends = append_all(log, batches)
        assert all(isinstance(append.outcome, LogAppendInfo) for append in appends), told(appends)
        log.flush()
        acked += values


def test_a_power_cut_at_any_file_operation_loses_and_invents_nothing(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1200, index_interval_bytes=200)
    log = workshop_in(tmp_path / "counted").create(config)
    with CrashingDisk(tmp_path / "counted") as disk:
        turns(log, [])
    operations = disk.operations
    assert operations.count("write") < 36
    for number in range(len(operations)):
        workshop = workshop_in(tmp_path / str(number))
        log = workshop.create(config)
        acked: list[bytes] = []
        with CrashingDisk(workshop.folder, die_at=number):
            turns(log, acked)
        del log
        loaded = workshop.load(config, recovery_point=len(acked))
        found = {
            record.offset: record.value
            for segment in loaded.segments
            for batch in raw_batch.read_batches(workshop.log_bytes(segment.base_offset))
            for record in batch.records()
        }
        where = (number, operations[number])
        assert [found.get(offset) for offset in range(len(acked))] == acked, where
        assert all(EVERYTHING[offset] == value for offset, value in found.items()), where


def test_an_error_of_one_batch_carries_its_code(tmp_path: Path) -> None:
    log = LogWorkshop(tmp_path).create(LogConfig(max_message_bytes=200))
    produce(log)
    large = raw_batch.batch(b"large" * 100, base_timestamp=NOW)
    outcomes = [each.outcome for each in append_all(log, [*numbered(1), large, *numbered(1)])]
    assert isinstance(outcomes[1], KafkaError)
    assert outcomes[1].code is ErrorCode.MESSAGE_TOO_LARGE
    assert [each.base_offset for each in outcomes if isinstance(each, LogAppendInfo)] == [1, 2]
