"""Maps of segments: batches where they lie, damage, and no way out of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.tools.dump.dump_errors import DumpError
from tidelog.tools.dump.segment_map import (
    OutsideTheFolder,
    content_of,
    inside,
    log_folders,
    map_of,
    segments_of,
)

KAFKA_DATA = Path(__file__).resolve().parents[2] / "fixtures" / "kafka-3.9" / "data"
FIRST = f"{0:020d}.log"


def written(folder: Path, *batches: bytes | bytearray) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FIRST
    path.write_bytes(b"".join(map(bytes, batches)))
    return path


def batch(base_offset: int, count: int = 2, **options: object) -> bytearray:
    records = [(b"k", b"v%d" % number, (), 1_000 + number) for number in range(count)]
    return batch_of(records, base_offset=base_offset, **options)  # type: ignore[arg-type]


def test_a_map_has_every_batch_where_it_lies(tmp_path: Path) -> None:
    batches = [batch(0), batch(2, codec=Codec.GZIP), batch(4, 1, is_transactional=True)]
    found = map_of(written(tmp_path, *batches))

    assert [each.base_offset for each in found.batches] == [0, 2, 4]
    assert [each.last_offset for each in found.batches] == [1, 3, 4]
    assert [each.size for each in found.batches] == [len(each) for each in batches]
    assert [each.codec for each in found.batches] == ["none", "gzip", "none"]
    assert [each.is_transactional for each in found.batches] == [False, False, True]
    assert all(each.is_valid for each in found.batches)
    assert found.end_position == found.size
    assert (found.next_position, found.problem) == (None, None)


def test_a_long_map_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = written(tmp_path, *(batch(2 * number) for number in range(7)))
    seen: list[int] = []
    position: int | None = 0
    while position is not None:
        found = map_of(path, position, batches_max=3)
        seen += [each.base_offset for each in found.batches]
        position = found.next_position
    assert seen == [0, 2, 4, 6, 8, 10, 12]


def test_a_map_ends_after_so_many_bytes(tmp_path: Path) -> None:
    one = batch(0)
    path = written(tmp_path, one, batch(2), batch(4))
    found = map_of(path, bytes_max=2 * len(one) + 5)
    assert [each.base_offset for each in found.batches] == [0, 2]
    assert (found.next_position, found.problem) == (2 * len(one), None)


def test_a_flipped_bit_is_told_at_its_batch_alone(tmp_path: Path) -> None:
    broken = batch(2)
    broken[-1] ^= 1
    found = map_of(written(tmp_path, batch(0), broken, batch(4)))
    assert [each.is_valid for each in found.batches] == [True, False, True]


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (bytes(batch(2))[:-3], "are no whole batch"),
        (b"\0" * 64, "a batch cannot be 0 bytes long"),
        (b"\0" * 5, "the last 5 bytes are no whole batch"),
    ],
)
def test_a_map_says_why_it_ends_early(tmp_path: Path, rest: bytes, words: str) -> None:
    found = map_of(written(tmp_path, batch(0), rest))
    assert [each.base_offset for each in found.batches] == [0]
    assert found.problem is not None
    assert words in found.problem
    assert str(tmp_path) not in found.problem
    assert found.next_position is None


def test_a_batch_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    found = map_of(written(tmp_path, batch(0, 50), batch(50)), bytes_max=100)
    assert (found.batches, found.next_position) == ([], None)
    assert "larger" in str(found.problem)


def test_records_of_a_batch_are_shown(tmp_path: Path) -> None:
    path = written(tmp_path, batch(0), batch(2, codec=Codec.ZSTD))
    found = content_of(path, len(batch(0)))
    assert found is not None
    assert [(each.offset, each.value) for each in found.records] == [(2, b"v0"), (3, b"v1")]
    assert (found.is_whole, found.problem) == (True, None)
    assert content_of(path, path.stat().st_size) is None


def test_of_a_long_batch_the_first_records_are_shown(tmp_path: Path) -> None:
    found = content_of(written(tmp_path, batch(0, 500)), 0)
    assert found is not None
    assert (len(found.records), found.is_whole) == (100, False)


def test_records_that_cannot_be_read_are_a_sentence(tmp_path: Path) -> None:
    broken = batch(0, codec=Codec.GZIP)
    broken[70:80] = b"\xff" * 10
    found = content_of(written(tmp_path, broken), 0)
    assert found is not None
    assert found.records == []
    assert found.problem


def test_a_place_where_no_batch_begins_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, b"\0" * 200)
    with pytest.raises(DumpError):
        content_of(path, 3)


def test_kafkas_own_segments_are_mapped() -> None:
    folders = {each.name: each for each in log_folders(KAFKA_DATA)}
    assert folders["codecs-0"].segments >= 1
    for name in folders:
        for segment in segments_of(KAFKA_DATA / name):
            found = map_of(KAFKA_DATA / name / f"{segment.base_offset:020d}.log")
            assert found.size == segment.log_bytes
            assert sum(each.size for each in found.batches) <= segment.log_bytes


def test_segments_are_listed_with_their_indexes(tmp_path: Path) -> None:
    written(tmp_path, batch(0))
    (tmp_path / f"{0:020d}.index").write_bytes(bytes(16))
    (tmp_path / f"{7:020d}.log").write_bytes(b"")
    (tmp_path / "7.log").write_bytes(b"no segment")
    first, second = segments_of(tmp_path)
    assert (first.base_offset, first.index_bytes, first.time_index_bytes) == (0, 16, None)
    assert (second.base_offset, second.log_bytes) == (7, 0)


@pytest.mark.parametrize(
    "names",
    [
        ("..",),
        (".",),
        ("",),
        ("a-0", ".."),
        ("a-0", "..", "a-0"),
        ("a-0/../../etc",),
        ("/etc",),
        ("a-0\0",),
        ("..\\a-0",),
        ("gone-0",),
        ("link",),
        ("a-0", "link.log"),
        ("loop",),
    ],
)
def test_no_path_leads_out_of_the_folder(tmp_path: Path, names: tuple[str, ...]) -> None:
    root = tmp_path / "root"
    written(root / "a-0", batch(0))
    (tmp_path / "secret").mkdir()
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "a-0" / "link.log").symlink_to("/etc/hostname")
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(OutsideTheFolder):
        inside(root, *names)


def test_logs_are_listed_by_topic_and_partition(tmp_path: Path) -> None:
    names = ["a-0", "a-2", "a-2.x1-future", "a-10", "a-b-1", "b-0"]
    for name in [*reversed(names), "checkpoint", "no partition-1"]:
        (tmp_path / name).mkdir()
    assert [each.name for each in log_folders(tmp_path)] == names


def test_links_are_not_listed(tmp_path: Path) -> None:
    written(tmp_path / "other" / "b-0", batch(0))
    written(tmp_path / "root" / "a-0", batch(0))
    (tmp_path / "root" / "b-0").symlink_to(tmp_path / "other" / "b-0")
    (tmp_path / "root" / "a-0" / f"{9:020d}.log").symlink_to("/etc/hostname")
    (folder,) = log_folders(tmp_path / "root")
    assert (folder.name, folder.segments) == ("a-0", 1)
    assert [each.base_offset for each in segments_of(tmp_path / "root" / "a-0")] == [0]


def test_what_lies_in_the_folder_is_found_also_by_a_link_to_it(tmp_path: Path) -> None:
    written(tmp_path / "root" / "a-0", batch(0))
    (tmp_path / "other").symlink_to(tmp_path / "root")
    assert inside(tmp_path / "other", "a-0", FIRST).read_bytes() == bytes(batch(0))
