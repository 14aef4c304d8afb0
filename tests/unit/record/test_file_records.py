from __future__ import annotations

from pathlib import Path

from tidelog.record.file_records import FileRecords


def test_a_slice_reads_its_bytes_only(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        records = FileRecords(file, 3, 4)
        assert len(records) == 4
        assert records.fileno() == file.fileno()
        assert records.read() == b"3456"


def test_a_slice_survives_the_unlinking_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        records = FileRecords(file, 0, 10)
        path.unlink()
        assert records.read() == b"0123456789"


def test_a_part_ends_with_the_slice(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        records = FileRecords(file, 2, 5)
        assert records.read_part(1, 2) == b"34"
        assert records.read_part(3, 100) == b"56"
