from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.directory.meta_properties import (
    MetaProperties,
    read_meta_properties,
    reconcile,
    write_meta_properties,
)
from tidelog.log.log_errors import CorruptMetaProperties
from tidelog.types import Uuid


def test_version_0_is_written_as_a_kafka_over_zookeeper_does(tmp_path: Path) -> None:
    write_meta_properties(str(tmp_path), MetaProperties(3, "abc"), now_ms=1_700_000_000_000)
    assert (tmp_path / "meta.properties").read_text() == (
        "#\n#Tue Nov 14 22:13:20 UTC 2023\ncluster.id=abc\nversion=0\nbroker.id=3\n"
    )
    assert read_meta_properties(str(tmp_path)) == MetaProperties(3, "abc")


def test_kraft_properties_are_understood(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\nversion=1\nnode.id=4\ncluster.id=abc\ndirectory.id=8Y5dk1M3etTifqPPkpX3Hw\n"
    )
    directory_id = Uuid.parse("8Y5dk1M3etTifqPPkpX3Hw")
    assert read_meta_properties(str(tmp_path)) == MetaProperties(4, "abc", 1, directory_id)


def test_no_file_is_no_identity(tmp_path: Path) -> None:
    assert read_meta_properties(str(tmp_path)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "version=2\nbroker.id=1\ncluster.id=x",
        "version=0\nbroker.id=one\ncluster.id=x",
        "version=0\ncluster.id=x",
        "version=0\nbroker.id=1",
        "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=y",
    ],
)
def test_corrupt_properties_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(CorruptMetaProperties, match=r"meta\.properties"):
        read_meta_properties(str(tmp_path))


def test_bytes_that_are_no_text_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(CorruptMetaProperties, match="cannot be read"):
        read_meta_properties(str(tmp_path))


def test_new_directories_are_marked_and_old_ones_left(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    (old / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    reconcile([str(old), str(new)], 1, "x", now_ms=0)
    assert read_meta_properties(str(new)) == MetaProperties(1, "x")
    assert (old / "meta.properties").read_text().startswith("version=0")


@pytest.mark.parametrize(("broker_id", "cluster_id"), [(2, "x"), (1, "y")])
def test_a_directory_of_somebody_else_is_refused(
    tmp_path: Path, broker_id: int, cluster_id: str
) -> None:
    write_meta_properties(str(tmp_path), MetaProperties(1, "x"), now_ms=0)
    with pytest.raises(CorruptMetaProperties, match="belongs to"):
        reconcile([str(tmp_path)], broker_id, cluster_id, now_ms=0)
