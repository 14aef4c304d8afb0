from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.directory.checkpoints import (
    CheckpointFile,
    encode_epochs,
    encode_offsets,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from tidelog.log.log_errors import CorruptCheckpoint
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

OFFSETS = {TopicPartition("a", 0): 5, TopicPartition("b.c", 12): 2**40}


def test_an_offset_checkpoint_has_a_version_a_count_and_a_row_per_partition(
    tmp_path: Path,
) -> None:
    assert encode_offsets(OFFSETS) == b"0\n2\na 0 5\nb.c 12 1099511627776\n"
    path = str(tmp_path / "checkpoint")
    CheckpointFile(path).pending(OFFSETS).run()
    assert read_offsets(path) == OFFSETS
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("content", [b"", b"0\n0\n"])
def test_an_empty_checkpoint_has_no_rows(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    assert read_offsets(str(tmp_path / "checkpoint")) == {}


def test_a_missing_checkpoint_has_no_rows(tmp_path: Path) -> None:
    assert read_offsets(str(tmp_path / "none")) == {}
    assert read_epochs(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\na 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na zero 5\n",
        b"0\nx\n",
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match="checkpoint"):
        read_offsets(str(tmp_path / "checkpoint"))


def test_an_epoch_checkpoint_has_an_epoch_and_its_start_a_row(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(encode_epochs([(0, 0), (3, 120)]))
    assert path.read_bytes() == b"0\n2\n0 0\n3 120\n"
    assert read_epochs(str(path)) == [(0, 0), (3, 120)]


@pytest.mark.parametrize("content", [b"0\n2\n3 0\n1 5\n", b"0\n2\n1 9\n2 5\n", b"0\n1\n1\n"])
def test_epochs_that_do_not_grow_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpoint):
        read_epochs(str(path))


def test_partition_metadata_has_no_final_newline(tmp_path: Path) -> None:
    topic_id = Uuid(bytes(range(16)))
    write_partition_metadata(str(tmp_path), topic_id)
    content = (tmp_path / "partition.metadata").read_bytes()
    assert content == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_partition_metadata(str(tmp_path)) == topic_id


def test_a_log_without_partition_metadata_has_the_zero_id(tmp_path: Path) -> None:
    assert read_partition_metadata(str(tmp_path)) == ZERO_UUID


@pytest.mark.parametrize("content", [b"", b"version: 0", b"version: 0\ntopic_id: short", b"\xff"])
def test_damaged_partition_metadata_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match=r"partition\.metadata"):
        read_partition_metadata(str(tmp_path))
