from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.batches import simple_batch
from tests.support.segment_files import SegmentWriter
from tidelog.spark.log_directory import (
    NoLog,
    OffsetPositions,
    begin_position,
    find_end,
    find_logs,
    walk_batches,
)
from tidelog.types import TopicPartition

T = TopicPartition("dotted.topic-x", 3)


@pytest.fixture
def writer(tmp_path: Path) -> SegmentWriter:
    return SegmentWriter(tmp_path, T)


def test_partitions_and_segments_are_found_by_their_names(
    tmp_path: Path, writer: SegmentWriter
) -> None:
    writer.append()
    writer.roll()
    writer.append()
    (writer.folder / "00000000000000000000.log.deleted").touch()
    (tmp_path / f"{T}.0123456789abcdef-delete").mkdir()
    (tmp_path / "empty-0").mkdir()
    logs = find_logs(str(tmp_path))
    assert list(logs) == [T]
    assert [segment.base_offset for segment in logs[T].segments] == [0, 10]
    assert logs[T].segment_of(9) == 0
    assert logs[T].segment_of(10) == 1


def test_the_path_may_be_one_partition(writer: SegmentWriter) -> None:
    assert list(find_logs(str(writer.folder))) == [T]


def test_a_path_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoLog, match="holds no <topic>-<partition> folder"):
        find_logs(str(tmp_path))


def test_deleted_records_move_the_start_of_the_log(tmp_path: Path, writer: SegmentWriter) -> None:
    writer.append()
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{T.topic} {T.partition} 7\n")
    assert find_logs(str(tmp_path))[T].log_start_offset == 7


@pytest.mark.parametrize(
    "tail", [b"", b"\x00" * 100, bytes(simple_batch(base_offset=30))[:-1], b"\xff" * 90]
)
def test_the_log_ends_after_the_last_whole_batch(
    tmp_path: Path, writer: SegmentWriter, tail: bytes
) -> None:
    for _ in range(3):
        writer.append()
    size = writer.log.stat().st_size
    with writer.log.open("ab") as log:
        log.write(tail)
    assert find_end(find_logs(str(tmp_path))[T]) == (30, size)


def test_a_last_batch_with_a_wrong_checksum_is_not_read(
    tmp_path: Path, writer: SegmentWriter
) -> None:
    writer.append()
    writer.append()
    size = writer.log.stat().st_size
    damaged = bytearray(simple_batch(base_offset=20))
    damaged[-1] ^= 1
    writer.append_bytes(damaged, 3)
    assert find_end(find_logs(str(tmp_path))[T]) == (20, size)


def test_an_empty_segment_ends_where_it_begins(tmp_path: Path, writer: SegmentWriter) -> None:
    assert find_end(find_logs(str(tmp_path))[T]) == (0, 0)


def test_the_index_leads_to_the_batch_before_and_behind_an_offset(
    tmp_path: Path, writer: SegmentWriter
) -> None:
    starts = []
    for _ in range(5):
        starts.append(writer.log.stat().st_size)
        writer.append()
    segment = find_logs(str(tmp_path))[T].segments[0]
    positions = OffsetPositions(segment)
    for offset in range(50):
        begin = begin_position(segment, positions, offset)
        assert begin in starts
        assert begin <= starts[offset // 10]
        assert positions.after(offset, segment.size_bytes) > starts[max(offset - 1, 0) // 10]
    assert begin_position(segment, positions, 49) == starts[3]


@pytest.mark.parametrize("index", [None, b"\x00" * 80, b"\x00\x00\x00\x05\x00\x00\x00\x07" * 3])
def test_a_missing_or_damaged_index_costs_time_only(
    tmp_path: Path, writer: SegmentWriter, index: bytes | None
) -> None:
    for _ in range(4):
        writer.append()
    path = writer.log.with_suffix(".index")
    path.unlink()
    if index is not None:
        path.write_bytes(index)
    log = find_logs(str(tmp_path))[T]
    assert begin_position(log.segments[0], OffsetPositions(log.segments[0]), 35) == 0
    assert find_end(log).offset == 40


def test_a_batch_larger_than_the_piece_is_read_whole(writer: SegmentWriter) -> None:
    writer.append(2)
    writer.append(500)
    writer.append(2)
    size = writer.log.stat().st_size
    rows = [row for _, _, found in walk_batches(str(writer.log), 0, size, 200) for row in found]
    assert [(row[4], row[5]) for row in rows] == [(0, 1), (2, 501), (502, 503)]
