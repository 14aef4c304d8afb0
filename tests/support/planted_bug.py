"""A broker with a bug, for tests of the harness that is to find it. It is interpreted, because a
compiled module does not look at what is put in place of its functions.

python -m tests.support.planted_bug early_acks serve --override ...
"""

from __future__ import annotations

import sys

import tidelog
from tidelog.errors import ErrorCode
from tidelog.log.log_validator import FetchedBatches
from tidelog.replication import follower_session
from tidelog.replication.delayed_answer import Settle
from tidelog.replication.follower_session import FollowerAnswer, SessionPartition
from tidelog.replication.partition import EpochEndOffset, LogReadInfo, Partition
from tidelog.tools.cli.main import main


def early_acks() -> None:
    """acks=all is answered before the followers have the records."""

    def when_committed(self: Partition, offset: int, settle: Settle) -> None:
        settle(ErrorCode.NONE)

    Partition.when_committed = when_committed  # type: ignore[method-assign]


def no_truncation() -> None:
    """Leaders do not tell a follower that its log parts from theirs."""

    def divergence(self: Partition, offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        return None

    Partition.divergence = divergence  # type: ignore[method-assign]


def forgotten_batches() -> None:
    """Leaders forget a batch for which an answer to a follower has no room."""
    read = follower_session._read

    def forget(
        entry: SessionPartition, answer: FollowerAnswer, max_bytes: int
    ) -> LogReadInfo | ErrorCode | None:
        row = read(entry, answer, max_bytes)
        if row is None and entry.partition is not None:
            return entry.partition.read_for_follower(entry.fetch_offset, 0, min_one_batch=False)
        return row

    follower_session._read = forget


def refused_beginnings() -> None:
    """An empty replica refuses the batch inside of which its leader's log begins."""
    FetchedBatches.begin_around = lambda self, log_end_offset: False  # type: ignore[method-assign]


BUGS = {
    bug.__name__: bug for bug in (early_acks, no_truncation, forgotten_batches, refused_beginnings)
}


def program_with(bug: str) -> tuple[str, ...]:
    """What runs in place of `tidelog`."""
    assert bug in BUGS
    interpreted = ("env", "TIDELOG_PURE=modules")
    return (*interpreted, sys.executable, "-m", "tests.support.planted_bug", bug)


if __name__ == "__main__":
    assert not tidelog.COMPILED, "no bug can be planted into compiled modules"
    BUGS[sys.argv[1]]()
    raise SystemExit(main(sys.argv[2:]))
