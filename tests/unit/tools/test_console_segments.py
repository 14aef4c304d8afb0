"""The console's pages of log segments, over what Apache Kafka wrote. No cluster is asked."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.console_client import Answer, ConsoleClient
from tidelog.record.builder import batch_of
from tidelog.tools.console.pages import segments
from tidelog.tools.console.pages.segments import CONTENT_CHARACTERS, content_text
from tidelog.tools.console.settings import ConsoleSettings

KAFKA_DATA = Path(__file__).resolve().parents[2] / "fixtures" / "kafka-3.9" / "data"
SETTINGS = ConsoleSettings({"bootstrap.servers": "127.0.0.1:1"})
SCRIPT = b"<script>alert(1)</script>"


@pytest.fixture
def console() -> Iterator[ConsoleClient]:
    with ConsoleClient(SETTINGS, logs=(KAFKA_DATA,)) as client:
        yield client


def page(console: ConsoleClient, what: str, **query: object) -> Answer:
    return console.get(f"/segments/{what}?" + urlencode(query))


def test_directories_list_their_logs(console: ConsoleClient) -> None:
    words = console.get("/segments").words
    assert str(KAFKA_DATA) in words
    assert "codecs-0" in words
    assert "orders-1" in words
    assert "meta.properties" not in words
    assert "codecs-0" not in console.get("/segments?text=orders").words


def test_a_console_without_directories_says_how_to_give_one() -> None:
    with ConsoleClient(SETTINGS) as console:
        assert "--logs DIR" in console.get("/segments").words
        assert page(console, "log", dir=0, folder="codecs-0").status == 404


def test_a_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    with ConsoleClient(SETTINGS, logs=(tmp_path / "gone",)) as console:
        found = console.get("/segments")
        assert (found.status, "It cannot be read" in found.words) == (200, True)


def test_a_log_a_map_and_a_batch_are_shown(console: ConsoleClient) -> None:
    log = page(console, "log", dir=0, folder="codecs-0")
    assert (log.status, "2 segments" in log.words) == (200, True)
    shown = page(console, "map", dir=0, folder="codecs-0", segment=0)
    assert shown.status == 200
    assert 'class="compressed"' in shown.text
    assert "style=" not in shown.text
    positions = re.findall(r"position=(\d+)", shown.text)
    batch = page(console, "batch", dir=0, folder="codecs-0", segment=0, position=positions[0])
    assert batch.status == 200
    assert "the checksum holds" in batch.words
    assert "key 0-0" in batch.words
    assert "trace=0 empty=null" in batch.words


def test_records_of_internal_topics_are_decoded(console: ConsoleClient) -> None:
    folder = "__consumer_offsets-0"
    shown = page(console, "map", dir=0, folder=folder, segment=0)
    found = ""
    for position in re.findall(r"position=(\d+)", shown.text):
        found += page(console, "batch", dir=0, folder=folder, segment=0, position=position).words
    assert '{"group": "readers"}' in found


@pytest.mark.parametrize(
    ("folder", "segment", "kind", "words"),
    [
        ("codecs-0", 0, "index", "offset position"),
        ("codecs-0", 0, "timeindex", "timestamp offset"),
        ("codecs-0", 16, "snapshot", "no entries"),
    ],
)
def test_indexes_and_snapshots_are_shown(
    console: ConsoleClient, folder: str, segment: int, kind: str, words: str
) -> None:
    log = page(console, "log", dir=0, folder=folder)
    assert f"segment={segment}&amp;kind={kind}" in log.text
    found = page(console, "entries", dir=0, folder=folder, segment=segment, kind=kind)
    assert found.status == 200
    assert words in found.words
    assert "disagree" not in found.words


def test_an_index_that_disagrees_with_its_segment_is_told(tmp_path: Path) -> None:
    shutil.copytree(KAFKA_DATA / "codecs-0", tmp_path / "codecs-0")
    index = tmp_path / "codecs-0" / f"{0:020d}.index"
    index.write_bytes((3).to_bytes(4, "big") + (1).to_bytes(4, "big"))
    with ConsoleClient(SETTINGS, logs=(tmp_path,)) as console:
        found = page(console, "entries", dir=0, folder="codecs-0", segment=0, kind="index")
        assert "disagree" in found.words
        assert "Index offset: 3, log offset: -1" in found.words
        index.write_bytes(bytes(range(1, 9)) * 600)
        long = page(console, "entries", dir=0, folder="codecs-0", segment=0, kind="index")
        assert "The first 500 entries" in long.words
        cut = tmp_path / "codecs-0" / f"{16:020d}.snapshot"
        cut.write_bytes(b"no snapshot")
        refused = page(console, "entries", dir=0, folder="codecs-0", segment=16, kind="snapshot")
        assert (refused.status, "This cannot be shown" in refused.words) == (400, True)


def test_other_files_are_no_entries(console: ConsoleClient) -> None:
    for kind in ("log", "", "../x", "checkpoint"):
        found = page(console, "entries", dir=0, folder="codecs-0", segment=0, kind=kind)
        assert found.status == 404
    assert page(console, "entries", dir=0, folder="codecs-0", segment=5, kind="index").status == 404


def test_a_log_is_checked(console: ConsoleClient) -> None:
    found = page(console, "check", dir=0, folder="codecs-0")
    assert found.status == 200
    assert "No damage." in found.words


def test_damage_is_shown_where_it_is(tmp_path: Path) -> None:
    shutil.copytree(KAFKA_DATA / "orders-0", tmp_path / "orders-0")
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with ConsoleClient(SETTINGS, logs=(tmp_path,)) as console:
        shown = page(console, "map", dir=0, folder="orders-0", segment=0)
        assert 'rect class="damaged"' in shown.text
        checked = page(console, "check", dir=0, folder="orders-0")
        assert "found. tidelog repair-log" in checked.words


def test_hostile_records_are_text(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    records = [(SCRIPT, b"\xff\x00", ((SCRIPT.decode(), SCRIPT),), 1_000), (None, None, (), 1_000)]
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(batch_of(records))
    with ConsoleClient(SETTINGS, logs=(tmp_path,)) as console:
        found = page(console, "batch", dir=0, folder="t-0", segment=0, position=0)
        assert found.status == 200
        assert SCRIPT.decode() not in found.text
        assert SCRIPT.decode() in found.words
        assert "0xff00" in found.words


@pytest.mark.parametrize(
    "query",
    [
        {"dir": "0", "folder": ".."},
        {"dir": "0", "folder": "../data"},
        {"dir": "0", "folder": "/etc"},
        {"dir": "0", "folder": ""},
        {"dir": "0", "folder": "codecs-0/.."},
        {"dir": "1", "folder": "codecs-0"},
        {"dir": "-1", "folder": "codecs-0"},
        {"dir": "0", "folder": "codecs-0", "segment": "../0"},
        {"dir": "0", "folder": "codecs-0", "segment": "9"},
        {"dir": "0", "folder": "codecs-0", "segment": "0", "position": "x"},
        {"dir": "0", "folder": "codecs-0", "segment": "0", "position": "9" * 19},
    ],
)
def test_nothing_outside_is_reached(console: ConsoleClient, query: dict[str, str]) -> None:
    assert page(console, "batch", **query).status == 404
    if "segment" not in query:
        assert page(console, "log", **query).status == 404
        assert page(console, "check", **query).status == 404
    if "position" not in query:
        assert page(console, "map", **query).status == 404


def test_a_log_that_is_too_large_is_not_checked(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "CHECK_BYTES_MAX", 10)
    found = page(console, "check", dir=0, folder="codecs-0")
    assert (found.status, "tidelog verify-log" in found.words) == (400, True)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, None),
        (b"", ""),
        ("ü".encode(), "ü"),
        (b"\xff", "0xff"),
        (b"x" * 9_000, "x" * CONTENT_CHARACTERS + " …"),
        (("€" * 9_000).encode(), "€" * CONTENT_CHARACTERS + " …"),
    ],
)
def test_contents_are_text_or_hex_and_cut(content: bytes | None, expected: str | None) -> None:
    assert content_text(content) == expected
