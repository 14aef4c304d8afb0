"""The store's files: what a torn write, damage and other formats do to them."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import struct
import zlib
from pathlib import Path

import pytest

from tests.support.metadata import contents, in_loop, open_store
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.journal import (
    CHANGE,
    HEADER,
    JOURNAL_NAME,
    MARKER,
    PAYLOAD,
    RECORD,
    SNAPSHOT_NAME,
    CorruptStore,
    Journal,
)
from tidelog.controller.metadata_store import Create, Delete, Operation, SetData

MULTIS: list[list[Operation]] = [
    [Create("/a", b"one"), Create("/a/b", b"two")],
    [SetData("/a", b"three")],
    [Create("/a/n", sequence=True), Delete("/a/b"), SetData("/a", b"")],
    [Create("/\u00e4\u4e2d", "\u00df".encode())],
    [Create("/z", bytes(range(256)))],
]


async def written(directory: Path) -> tuple[bytes, list[tuple[int, dict[str, bytes]]]]:
    """A journal, and after which length it holds which nodes."""
    directory.mkdir()
    store = open_store(directory)
    journal = directory / JOURNAL_NAME
    states = [(0, contents(store))]
    for operations in MULTIS:
        await store.multi(operations)
        states.append((journal.stat().st_size, contents(store)))
    await store.close()
    return journal.read_bytes(), states


def opened_with(directory: Path, journal: bytes) -> EmbeddedStore:
    (directory / JOURNAL_NAME).write_bytes(journal)
    return open_store(directory)


@in_loop
async def test_a_journal_cut_at_any_byte_holds_every_multi_that_is_whole_and_no_part_of_another(
    tmp_path: Path,
) -> None:
    journal, states = await written(tmp_path / "whole")
    for length in range(len(journal) + 1):
        store = opened_with(tmp_path, journal[:length])
        expected = [state for end, state in states if end <= length][-1]
        assert contents(store) == expected
        await store.close()


@in_loop
async def test_a_store_goes_on_behind_a_cut(tmp_path: Path) -> None:
    journal, states = await written(tmp_path / "whole")
    for length in range(0, len(journal) + 1, 13):
        store = opened_with(tmp_path, journal[:length])
        await store.create("/after", b"the cut")
        await store.close()
        expected = [state for end, state in states if end <= length][-1]
        again = open_store(tmp_path)
        assert contents(again) == {**expected, "/after": b"the cut"}
        await again.close()


@in_loop
async def test_a_journal_with_any_byte_changed_is_cut_before_its_last_multi_or_refused(
    tmp_path: Path,
) -> None:
    journal, states = await written(tmp_path / "whole")
    last_start = states[-2][0]
    for position in range(len(journal)):
        damaged = bytearray(journal)
        damaged[position] ^= 0x55
        if position >= last_start:
            store = opened_with(tmp_path, bytes(damaged))
            assert contents(store) == states[-2][1]
            await store.close()
        else:
            with pytest.raises(CorruptStore):
                opened_with(tmp_path, bytes(damaged))


@in_loop
async def test_multis_of_one_torn_write_are_cut_though_a_later_one_is_whole(
    tmp_path: Path,
) -> None:
    """Blocks of one write may reach the disk in any order; none of it was acknowledged."""
    store = open_store(tmp_path)
    await store.create("/kept")
    await store.create("/e", ephemeral=True)
    end = (tmp_path / JOURNAL_NAME).stat().st_size
    await asyncio.gather(store.create("/x"), store.create("/y"))
    await store.close()
    journal = bytearray((tmp_path / JOURNAL_NAME).read_bytes())
    journal[end + 20] ^= 1
    again = opened_with(tmp_path, bytes(journal))
    assert contents(again) == {"/": b"", "/kept": b""}
    await again.close()


@in_loop
async def test_a_cut_is_said_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal, _ = await written(tmp_path / "whole")
    with caplog.at_level(logging.WARNING):
        await opened_with(tmp_path, journal[:-1]).close()
    assert "the last record was not finished (it is cut short)" in caplog.text


@in_loop
async def test_zeros_behind_the_last_record_are_cut(tmp_path: Path) -> None:
    journal, states = await written(tmp_path / "whole")
    store = opened_with(tmp_path, journal + bytes(4096))
    assert contents(store) == states[-1][1]
    assert (tmp_path / JOURNAL_NAME).stat().st_size == len(journal)
    await store.close()


def test_a_journal_of_another_format_is_refused(tmp_path: Path) -> None:
    other = HEADER[:8] + struct.pack(">I", 2)
    with pytest.raises(CorruptStore, match="of this version"):
        opened_with(tmp_path, other + struct.pack(">I", zlib.crc32(other)))


def test_a_change_of_a_kind_that_a_later_version_wrote_is_refused(tmp_path: Path) -> None:
    payload = PAYLOAD.pack(1, 0, 0, 1) + CHANGE.pack(99, 0, 2, 0) + b"/x"
    record = RECORD.pack(MARKER, len(payload), zlib.crc32(payload)) + payload
    with pytest.raises(CorruptStore, match=r"kind 99 at position 16, which a later version"):
        opened_with(tmp_path, HEADER + record)


def test_the_header_is_as_documented() -> None:
    assert HEADER[:12] == b"tdlgmeta" + struct.pack(">I", 1)
    assert struct.unpack(">I", HEADER[12:]) == (zlib.crc32(HEADER[:12]),)


async def snapshot_of(directory: Path) -> bytes:
    journal, _ = await written(directory / "whole")
    (directory / JOURNAL_NAME).write_bytes(journal)
    await EmbeddedStore.open(directory, journal_bytes_max=1).close()
    return (directory / SNAPSHOT_NAME).read_bytes()


@in_loop
async def test_a_snapshot_holds_what_the_journal_held(tmp_path: Path) -> None:
    await snapshot_of(tmp_path)
    assert (tmp_path / JOURNAL_NAME).read_bytes() == HEADER
    store = open_store(tmp_path)
    whole = open_store(tmp_path / "whole")
    assert list(store.subtree("/")) == list(whole.subtree("/"))
    await store.close()
    await whole.close()


@in_loop
async def test_no_write_is_lost_after_a_snapshot_whose_last_sync_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore.open(tmp_path, journal_bytes_max=1_000)
    sync = os.fsync

    def failing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(JOURNAL_NAME):
            raise OSError(errno.EIO, "a disk that fails now and then")
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        await store.multi([Create("/large", bytes(2_000))])
        # The process ends before there is another snapshot.
        monkeypatch.setattr(Journal, "wants_snapshot", lambda self, journal_bytes_max: False)
        await store.multi([])  # the first one is over
    await store.multi([Create("/after", b"1")])
    await store.multi([SetData("/after", b"2")])
    expected = contents(store)
    await store.close()
    again = open_store(tmp_path)
    assert contents(again) == expected
    await again.close()


@in_loop
async def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    snapshot = await snapshot_of(tmp_path)
    for position in range(len(snapshot)):
        damaged = bytearray(snapshot)
        damaged[position] ^= 0x55
        (tmp_path / SNAPSHOT_NAME).write_bytes(damaged)
        with pytest.raises(CorruptStore):
            open_store(tmp_path)
    for length in range(len(snapshot)):
        (tmp_path / SNAPSHOT_NAME).write_bytes(snapshot[:length])
        with pytest.raises(CorruptStore):
            open_store(tmp_path)
