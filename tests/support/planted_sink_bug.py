"""Bugs of the exactly-once Spark sink, for tests of the harness that is to find them.

Spark starts Python processes of its own, so a bug is planted by a module `sitecustomize`, which
every Python process imports at its start. The commit of a batch also takes longer, so that kills
meet it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

SLOW_S: Final = 2.0

_ROOT = Path(__file__).resolve().parents[2]


def slow_commits() -> None:
    """No bug at all: a batch is visible for a while before Spark knows it."""
    from tidelog.spark.batch_commit import BatchCommit

    commit = BatchCommit.commit

    async def slow(self, rows, transactions):  # type: ignore[no-untyped-def]
        taken = await commit(self, rows, transactions)
        await asyncio.sleep(SLOW_S)
        return taken

    BatchCommit.commit = slow  # type: ignore[method-assign]


def no_marker() -> None:
    """A batch is not known again."""
    from tidelog.spark.sink_ledger import ClusterLedger

    read = ClusterLedger.marker_or_none

    async def forget(self: ClusterLedger) -> None:
        await read(self)

    ClusterLedger.marker_or_none = forget  # type: ignore[method-assign]
    slow_commits()


def tasks_commit_themselves() -> None:
    """The transaction of a task is committed before all tasks are done."""
    from tidelog.client.blocking.admin import Admin
    from tidelog.client.blocking.producer import Producer
    from tidelog.client.producer.transaction_requests import OpenTransaction
    from tidelog.spark.sink_ledger import ClusterLedger

    async def trust(self: ClusterLedger, transactions: object) -> list[object]:
        return []

    ClusterLedger.timed_out = trust  # type: ignore[assignment,method-assign]
    hand_over = Producer.hand_over_transaction

    def commit(self: Producer) -> OpenTransaction:
        handed = hand_over(self)
        with Admin(bootstrap_servers=self.config.text("bootstrap.servers")) as admin:
            admin.end_transactions([handed], committed=True)
        time.sleep(SLOW_S)
        return handed

    Producer.hand_over_transaction = commit  # type: ignore[method-assign]


BUGS: Final[Mapping[str, Callable[[], None]]] = {
    bug.__name__: bug for bug in (slow_commits, no_marker, tasks_commit_themselves)
}


def planted(bug: str, directory: Path) -> dict[str, str]:
    """What the environment of a process has to hold for the bug to be in it."""
    if not bug:
        return {}
    site = directory / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(
        f"from tests.support.planted_sink_bug import BUGS\nBUGS[{bug!r}]()\n"
    )
    path = os.pathsep.join([str(site), str(_ROOT), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path}
