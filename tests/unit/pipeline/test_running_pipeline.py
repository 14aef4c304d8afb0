"""Queries that Spark fails because the machine is busy, and those that fail for a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelog.pipeline.declaration import Pipeline, PipelineError
from tidelog.pipeline.queries import RESTARTS_MAX, WORKER_TOO_SLOW, RunningPipeline

PIPELINE = Pipeline(Path("shop/pipeline.toml"), "shop", "", "", "", {}, {}, "", "", (), (), ())


class EndedQuery:
    """What is left of a query that has ended, well or not."""

    isActive = False
    recentProgress = ()

    def __init__(self, reason: str | None) -> None:
        self._reason = reason

    def exception(self) -> Exception | None:
        return None if self._reason is None else RuntimeError(self._reason)


class Starts:
    """Of one query: what each start of it ends with; the last holds for all further ones."""

    def __init__(self, *reasons: str | None) -> None:
        self._reasons = reasons
        self.count = 0

    def __call__(self) -> Any:
        reason = self._reasons[min(self.count, len(self._reasons) - 1)]
        self.count += 1
        return EndedQuery(reason)


def watched(starts: Starts) -> None:
    running = RunningPipeline(PIPELINE)
    running.add("revenue", starts)
    running.watch(lambda: None, 0.0)


def test_a_query_whose_worker_was_too_slow_starts_again() -> None:
    starts = Starts(f"job aborted: {WORKER_TOO_SLOW}.", WORKER_TOO_SLOW, None)
    watched(starts)
    assert starts.count == 3


def test_a_query_whose_workers_are_always_too_slow_fails_in_the_end() -> None:
    starts = Starts(WORKER_TOO_SLOW)
    with pytest.raises(PipelineError, match=WORKER_TOO_SLOW):
        watched(starts)
    assert starts.count == 1 + RESTARTS_MAX


def test_a_query_that_fails_for_another_reason_does_not_start_again() -> None:
    starts = Starts("no such topic", None)
    with pytest.raises(PipelineError, match="no such topic"):
        watched(starts)
    assert starts.count == 1
