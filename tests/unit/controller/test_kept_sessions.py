"""A database that keeps its sessions: they and their ephemeral nodes outlive it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.metadata import in_loop, no_space, open_store
from tidelog.controller.journal import JOURNAL_NAME, SNAPSHOT_NAME, CorruptStore
from tidelog.controller.metadata_store import (
    NO_DATA,
    Create,
    Delete,
    SetData,
    StoreClosed,
    StoreUnavailable,
    WatchedEvent,
    Watcher,
)
from tidelog.controller.node_database import NodeDatabase
from tidelog.controller.node_tree import DeletedAccess, KeptSession, Transaction
from tidelog.controller.outstanding_changes import CloseSession, DropEphemeral, OpenSession

LARGE = 1024 * 1024


def opened(directory: Path, journal_bytes_max: int = LARGE) -> NodeDatabase:
    return NodeDatabase.open(directory, journal_bytes_max=journal_bytes_max, keeps_sessions=True)


async def written(directory: Path, journal_bytes_max: int = LARGE) -> None:
    database = opened(directory, journal_bytes_max)
    await database.write([OpenSession(7, 4000, b"secret"), OpenSession(8, 9000, b"")], 0)
    await database.write([Create("/e", b"mine", ephemeral=True), Create("/p", NO_DATA)], 7)
    await database.write([Create("/p/e", ephemeral=True), Create("/p/s", sequence=True)], 8)
    await database.write([SetData("/e", b"changed"), Delete("/p/e")], 7)
    await database.write([CloseSession(8)], 8)
    await database.close()


@pytest.mark.parametrize("journal_bytes_max", [LARGE, 1])
@in_loop
async def test_they_are_there_after_a_restart_out_of_the_journal_or_a_snapshot(
    tmp_path: Path, journal_bytes_max: int
) -> None:
    await written(tmp_path, journal_bytes_max)
    assert (tmp_path / SNAPSHOT_NAME).exists() == (journal_bytes_max == 1)
    database = opened(tmp_path, journal_bytes_max)
    tree = database.tree
    assert tree.sessions == {7: KeptSession(4000, b"secret")}
    assert tree.ephemerals == {7: {"/e": None}}
    assert (tree.node("/e").data, tree.node("/e").stat().ephemeral_owner) == (b"changed", 7)
    assert (tree.node("/e").version, tree.node("/p").created_children) == (1, 2)
    assert tree.node("/p").data is NO_DATA
    assert tree.node("/p/s0000000001").data == b""
    assert tree.node("/p/s0000000001").data is not NO_DATA
    await database.close()


@in_loop
async def test_zxids_never_go_back_though_a_run_writes_nothing(tmp_path: Path) -> None:
    last = 0
    for _ in range(3):
        database = opened(tmp_path)
        assert database.tree.zxid > last
        await database.write([], 0)  # as sync does; it has a zxid and no record
        last = database.tree.zxid
        await database.close()


@in_loop
async def test_a_journal_cut_at_any_byte_is_a_run_that_stopped_there(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    await written(whole)
    journal = (whole / JOURNAL_NAME).read_bytes()
    for length in range(0, len(journal), 7):
        cut = tmp_path / str(length)
        cut.mkdir()
        (cut / JOURNAL_NAME).write_bytes(journal[:length])
        database = opened(cut)
        owners = {owner for owner in database.tree.ephemerals}
        assert owners <= {7, 8}
        assert (7 in owners) == ("/e" in database.tree.nodes)
        await database.close()


@in_loop
async def test_neither_kind_of_store_takes_the_files_of_the_other(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "sessions", tmp_path / "plain"
    ours.mkdir()
    theirs.mkdir()
    await written(ours)
    store = open_store(theirs)
    await store.create("/a")
    await store.close()
    with pytest.raises(CorruptStore):
        open_store(ours)
    with pytest.raises(CorruptStore):
        opened(theirs)


@in_loop
async def test_a_node_is_dropped_only_while_it_is_that_sessions(tmp_path: Path) -> None:
    database = opened(tmp_path)
    await database.write([Create("/e", ephemeral=True), Create("/p")], 7)
    await database.write([DropEphemeral(path, 8) for path in ("/e", "/p", "/no")], 8)
    assert {"/e", "/p"} <= set(database.tree.nodes)
    await database.write([DropEphemeral("/e", 7)], 7)
    assert "/e" not in database.tree.nodes
    assert database.tree.ephemerals == {}
    await database.close()


@in_loop
async def test_an_ephemeral_node_is_not_seen_if_the_disk_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        with pytest.raises(StoreUnavailable):
            await database.write([Create("/e", ephemeral=True)], 7)
    assert "/e" not in database.tree.nodes
    await database.close()


@in_loop
async def test_a_write_after_the_end_is_refused_and_reaches_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = opened(tmp_path)
    await database.close()
    for count in (1, 300):  # checked at once, and in slices
        with pytest.raises(StoreClosed):
            await database.write([Create(f"/{number}") for number in range(count)], 0)
    assert not caplog.records


@in_loop
async def test_readers_go_on_although_the_events_of_a_large_transaction_fail(
    tmp_path: Path,
) -> None:
    def broken(
        transaction: Transaction, deleted: DeletedAccess
    ) -> list[tuple[Watcher, WatchedEvent]]:
        raise RuntimeError("no event")

    database = opened(tmp_path)
    database.readers_wait = True
    database.fired = broken
    with pytest.raises(StoreUnavailable):
        await database.write([Create(f"/{number}") for number in range(300)], 0)
    assert not database.is_applying
    assert database.settled.is_set()
    await database.close()
