"""The server without its sockets: the end of sessions."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.metadata import in_loop
from tidelog.controller.metadata_store import Create
from tidelog.controller.node_database import NodeDatabase, Operations
from tidelog.controller.outstanding_changes import OpenSession
from tidelog.zookeeper import server as server_module
from tidelog.zookeeper.server import EmbeddedZooKeeper
from tidelog.zookeeper.session_tracker import Session


@in_loop
async def test_a_session_that_ends_while_the_server_stops_is_left_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "RETRY_S", 0.0)
    server = EmbeddedZooKeeper(tmp_path, asyncio.get_running_loop())
    await server.database.write([OpenSession(7, 4000, b"")], 7)
    await server.database.write([Create(f"/e{n}", ephemeral=True) for n in range(500)], 7)
    session = Session(7, 4000, b"")
    server.tracker.add(session)
    server.close_session(session, lambda: None)
    with caplog.at_level(logging.ERROR):
        await server.stop()
        submitted = count_submissions(server.database, monkeypatch)
        for _ in range(100):
            await asyncio.sleep(0)
    assert len(submitted) <= 3  # the pieces, once
    assert not caplog.records
    again = EmbeddedZooKeeper(tmp_path, asyncio.get_running_loop())
    await again._drop_orphans()
    assert not again.database.tree.ephemerals or 7 in again.database.tree.sessions
    await again.stop()


def count_submissions(database: NodeDatabase, monkeypatch: pytest.MonkeyPatch) -> list[Operations]:
    submitted: list[Operations] = []
    submit = database.submit

    def noted(operations: Operations, *rest: object) -> None:
        submitted.append(operations)
        submit(operations, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "submit", noted)
    return submitted
