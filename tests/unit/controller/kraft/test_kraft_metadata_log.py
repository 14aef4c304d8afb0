"""Metadata logs of KRaft, whole, cut and damaged: what is read and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kraft_log import KraftLogFolder, config, framed, raw_record, topic
from tidelog.controller.kraft.metadata_log import MetadataLog, UnreadableMetadata
from tidelog.protocol.messages.metadata_records import TopicRecord
from tidelog.types import Uuid

A, B, C = (Uuid(bytes([number]) * 16) for number in (1, 2, 3))


@pytest.fixture
def log(tmp_path: Path) -> KraftLogFolder:
    return KraftLogFolder(tmp_path)


def names(log: KraftLogFolder) -> list[str]:
    return sorted(each.name for each in log.image().topics.values())


def test_records_of_several_segments_are_read(log: KraftLogFolder) -> None:
    log.elect()
    log.append(*topic("a", A))
    log.roll()
    log.append(*topic("b", B))
    reader = MetadataLog(log.path)
    assert len(list(reader.records())) == 4
    assert (reader.end_offset, reader.voters) == (5, 1)


def test_the_log_goes_on_after_the_snapshot(log: KraftLogFolder) -> None:
    log.append(*topic("a", A), *topic("b", B))
    log.snapshot(4, *topic("a", A, retention_ms="-1"))
    log.append(*topic("c", C))
    assert names(log) == ["a", "c"]
    assert log.image().topic_configs == {"a": {"retention.ms": "-1"}}


def test_a_snapshot_alone_is_enough(log: KraftLogFolder) -> None:
    log.snapshot(400, *topic("a", A))
    assert names(log) == ["a"]


def test_the_newest_snapshot_counts(log: KraftLogFolder) -> None:
    log.snapshot(400, *topic("a", A))
    log.snapshot(90, *topic("b", B))
    assert names(log) == ["a"]


def test_a_snapshot_without_its_end_is_refused(log: KraftLogFolder) -> None:
    log.snapshot(4, *topic("a", A), has_footer=False)
    with pytest.raises(UnreadableMetadata, match="does not end as a snapshot does"):
        log.image()


def test_a_damaged_snapshot_is_refused(log: KraftLogFolder) -> None:
    path = log.snapshot(4, *topic("a", A))
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    with pytest.raises(UnreadableMetadata, match="cut off"):
        log.image()


@pytest.mark.parametrize("lost", [1, 30, 70])
def test_a_batch_that_a_crash_has_cut_is_passed_over(log: KraftLogFolder, lost: int) -> None:
    log.append(*topic("a", A))
    log.append(framed(TopicRecord(name="b", topic_id=B)))
    content = log.segment.read_bytes()
    log.segment.write_bytes(content[:-lost])
    assert names(log) == ["a"]


def test_zeros_at_the_end_are_passed_over(log: KraftLogFolder) -> None:
    log.append(*topic("a", A))
    with log.segment.open("ab") as file:
        file.write(bytes(500))
    assert names(log) == ["a"]


@pytest.mark.parametrize("position", [8, 9, 60, 75])
def test_damage_before_sound_batches_is_refused(log: KraftLogFolder, position: int) -> None:
    """A wrong length too, which would make all the rest look like one batch that was cut off."""
    log.append(*topic("a", A))
    log.append(config("a", "retention.ms", "-1"))
    content = bytearray(log.segment.read_bytes())
    content[position] ^= 0x40
    log.segment.write_bytes(content)
    with pytest.raises(UnreadableMetadata, match="position 0"):
        log.image()


def test_a_segment_that_is_cut_before_the_last_is_refused(log: KraftLogFolder) -> None:
    log.append(*topic("a", A))
    first = log.segment
    log.roll()
    log.append(*topic("b", B))
    first.write_bytes(first.read_bytes()[:-5])
    with pytest.raises(UnreadableMetadata, match="cut off"):
        log.image()


def test_a_missing_segment_is_refused(log: KraftLogFolder) -> None:
    log.append(*topic("a", A))
    log.roll()
    log.append(*topic("b", B))
    missing = log.segment
    log.roll()
    log.append(*topic("c", C))
    missing.unlink()
    with pytest.raises(UnreadableMetadata, match="goes on at offset 4, not at 2"):
        log.image()


def test_a_log_whose_beginning_is_gone_is_refused(log: KraftLogFolder) -> None:
    log.append(*topic("a", A))
    first = log.segment
    log.roll()
    log.append(*topic("b", B))
    first.unlink()
    with pytest.raises(UnreadableMetadata, match="no snapshot of what was before"):
        log.image()


def test_an_empty_folder_is_refused(log: KraftLogFolder) -> None:
    with pytest.raises(UnreadableMetadata, match="neither a snapshot nor a log"):
        log.image()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (raw_record(2, 0, b"", frame_version=2), "frame version 2"),
        (raw_record(99, 0, b""), "type 99 are not known"),
        (raw_record(4, 7, b""), "ConfigRecord has no version 7"),
        (raw_record(2, 0, b"\x09ab"), "TopicRecord v0"),
        (b"", "not a metadata record"),
    ],
)
def test_a_record_that_is_not_understood_is_refused(
    log: KraftLogFolder, value: bytes, reason: str
) -> None:
    log.append(*topic("a", A))
    log.append(value)
    with pytest.raises(UnreadableMetadata, match=reason):
        log.image()


def test_a_newer_version_of_what_is_passed_over_does_no_harm(log: KraftLogFolder) -> None:
    log.append(*topic("a", A), raw_record(0, 9, b"a broker of the future"))
    assert names(log) == ["a"]


def test_the_fingerprint_changes_with_every_write(log: KraftLogFolder) -> None:
    log.append(*topic("a", A))
    before = MetadataLog(log.path).fingerprint
    assert MetadataLog(log.path).fingerprint == before
    log.append(*topic("b", B))
    assert MetadataLog(log.path).fingerprint != before
