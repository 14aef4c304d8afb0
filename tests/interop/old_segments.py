"""Segments of magic 0 and 1 with their indexes, as a broker of those days left them."""

from __future__ import annotations

from pathlib import Path

from tests.support.message_sets import message_set_of
from tidelog.log.segment.log_file import LogFile
from tidelog.log.segment.log_segment import LogSegment
from tidelog.record.batch import Codec
from tidelog.record.legacy import LegacyRecord

NOW_MS = 1_400_000_000_000
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def write_old_segments(home: Path) -> None:
    for magic in (0, 1):
        folder = home / f"old-{magic}"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(old_log(magic))
        write_indexes(folder)


def old_log(magic: int) -> bytes:
    content = b""
    offset = 0
    for number in range(16):
        codec = CODECS[number % 4]
        records = [record(offset + step, magic) for step in range(3)]
        append_time_ms = NOW_MS + number if magic and number > 11 else None
        content += message_set_of(records, magic, codec=codec, append_time_ms=append_time_ms)
        offset += 3
    return content


def record(offset: int, magic: int) -> LegacyRecord:
    key = None if offset % 5 == 4 else b"key %d" % offset
    value = None if offset % 7 == 6 else b"value %d " % offset * 10
    return LegacyRecord(offset, NOW_MS + offset if magic else -1, key, value)


def write_indexes(folder: Path) -> None:
    file = LogFile(str(folder / f"{0:020d}.log"))
    segment = LogSegment(
        str(folder), 0, file, file.size_on_disk(), index_interval_bytes=400, created_ms=0
    )
    segment.install_indexes(segment.scan(verify_crc=True).run())
