"""Queries that fail: they start again after a while, others run on, and some stay down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelog.pipeline.console.progress_table import progress_lines, summary_line
from tidelog.pipeline.declaration.parts import (
    CONSOLE,
    Pipeline,
    PipelineError,
    Sink,
    TopicCreation,
)
from tidelog.pipeline.queries.layout import Query, member_alone, without_members
from tidelog.pipeline.queries.running import (
    OUT_METRIC,
    RETRIES_MAX,
    WORKER_TOO_SLOW,
    RunningPipeline,
)
from tidelog.pipeline.queries.topic_writer import BatchCounts
from tidelog.spark.expectations import EXPECTATION_FAILED
from tidelog.spark.record_format import RAW, RecordFormat

NO_TOPIC = TopicCreation()
PIPELINE = Pipeline(
    file=Path("shop/pipeline.toml"),
    name="shop",
    bootstrap="",
    checkpoint="",
    trigger="",
    dead_letter=NO_TOPIC,
    kafka={},
    spark={},
    master="",
    remote="",
    sources=(),
    views=(),
    sinks=(),
)


def query(name: str, line: int = 7) -> Query:
    sink = Sink(
        name, line, "orders", CONSOLE, "", RecordFormat(RAW), "", "append", "", (), NO_TOPIC, {}
    )
    return Query(name, (sink,))


class Report:
    def __init__(self, batch_id: int, **more: Any) -> None:
        self.json = json.dumps(
            {
                "timestamp": f"2026-01-05T08:00:{batch_id:02d}.000Z",
                "batchId": batch_id,
                "durationMs": {"triggerExecution": 500, "addBatch": 300},
                "sources": [{"numInputRows": 10}],
                **more,
            }
        )


class EndedQuery:
    """What is left of a query that has ended, well or not."""

    isActive = False

    def __init__(self, reason: str | None, *reports: Report) -> None:
        self._reason = reason
        self.recentProgress = reports

    def exception(self) -> Exception | None:
        return None if self._reason is None else RuntimeError(self._reason)

    def stop(self) -> None:
        pass


class LiveQuery(EndedQuery):
    isActive = True

    def __init__(self, *reports: Report) -> None:
        super().__init__(None, *reports)


class Starts:
    """Of one query: what each start of it gives; the last holds for all further ones."""

    def __init__(self, *ends: EndedQuery) -> None:
        self._ends = ends
        self.count = 0

    def __call__(self) -> Any:
        self.count += 1
        return self._ends[min(self.count, len(self._ends)) - 1]


class Seconds:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


FAILS = EndedQuery("no such topic")
ENDS = EndedQuery(None)


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def running(clock: Seconds) -> RunningPipeline:
    return RunningPipeline(PIPELINE, clock)


def starts_by_second(running: RunningPipeline, clock: Seconds, starts: Starts, until: int) -> Any:
    """The seconds at which the query started again."""
    found = []
    for second in range(until):
        clock.now_s = float(second)
        before = starts.count
        running.refresh()
        found += [second] * (starts.count - before)
    return found


def test_a_query_that_fails_starts_again_after_longer_and_longer_waits(
    running: RunningPipeline, clock: Seconds
) -> None:
    starts = Starts(FAILS)
    running.add(query("revenue"), starts)
    # It fails in the same second in which it starts, and is found so a second later.
    assert starts_by_second(running, clock, starts, 100) == [1, 4, 9, 18, 35]
    assert starts.count == 1 + RETRIES_MAX
    assert not running.is_active
    with pytest.raises(PipelineError, match=r"pipeline.toml:7: \[sink.revenue\] failed: no such"):
        running.raise_failure()


def test_others_run_while_one_waits_and_after_it_was_given_up(
    running: RunningPipeline, clock: Seconds
) -> None:
    failing, healthy = Starts(FAILS), Starts(LiveQuery())
    running.add(query("bad"), failing)
    running.add(query("good"), healthy)
    starts_by_second(running, clock, failing, 100)
    assert healthy.count == 1
    assert running.is_active
    assert [row.name for row in running.failed] == ["bad"]


def test_queries_whose_workers_were_too_slow_do_not_start_together_again(
    running: RunningPipeline, clock: Seconds
) -> None:
    slow = EndedQuery(f"job aborted: {WORKER_TOO_SLOW}.")
    first, second = Starts(slow, LiveQuery()), Starts(slow, LiveQuery())
    running.add(query("first"), first)
    running.add(query("second"), second)
    started = []
    for second_of_run in range(20):
        clock.now_s = float(second_of_run)
        running.refresh()
        started.append((first.count, second.count))
    assert started.index((2, 1)) == 1
    assert started.index((2, 2)) == 11


def test_a_batch_between_failures_makes_them_forgotten(
    running: RunningPipeline, clock: Seconds
) -> None:
    ends = [EndedQuery("gone", Report(number)) for number in range(2 * RETRIES_MAX)]
    starts = Starts(*ends, ENDS)
    running.add(query("revenue"), starts)
    starts_by_second(running, clock, starts, 100)
    running.raise_failure()
    assert starts.count == 1 + 2 * RETRIES_MAX
    assert running.queries["revenue"].restarts == 2 * RETRIES_MAX


def test_an_expectation_that_stops_a_query_stops_it_for_good(running: RunningPipeline) -> None:
    starts = Starts(EndedQuery(f"{EXPECTATION_FAILED} positive: 3 rows"))
    running.add(query("revenue"), starts)
    running.refresh()
    assert starts.count == 1
    with pytest.raises(PipelineError, match="positive: 3 rows"):
        running.raise_failure()


class SharedStart:
    """A start of a query, and what its writer counts."""

    def __init__(self, query: Query, starts: Starts) -> None:
        self.query = query
        self.counts: BatchCounts | None = BatchCounts()
        self.starts = starts

    def __call__(self) -> Any:
        return self.starts()


class Parting:
    """What takes members out of a shared query, as often as it is asked to."""

    def __init__(self, rest: Starts, alone: Starts) -> None:
        self.rest, self.alone = rest, alone
        self.asked: list[tuple[str, frozenset[str]]] = []

    def __call__(
        self, query: Query, leaving: frozenset[str], counts: BatchCounts
    ) -> list[SharedStart]:
        self.asked.append((query.name, leaving))
        rest = SharedStart(without_members(query, leaving), self.rest)
        rest.counts = counts
        return [
            rest,
            *(
                SharedStart(member_alone(query, name, "id-1"), self.alone)
                for name in sorted(leaving)
            ),
        ]


SHARED = replace(
    query("source.orders"), sinks=(*query("good").sinks, *query("bad").sinks), is_shared=True
)


class FailingMembers(Starts):
    """Of a shared query: each start of it fails for some of its members."""

    def __init__(self, end: EndedQuery, *failed: str) -> None:
        super().__init__(end)
        self.counts = BatchCounts()
        self._failed = frozenset(failed)

    def __call__(self) -> Any:
        self.counts.failed = self._failed
        return super().__call__()


def test_a_member_that_fails_again_leaves_and_the_others_go_on_at_once(clock: Seconds) -> None:
    parting = Parting(Starts(LiveQuery(Report(7))), Starts(FAILS))
    running = RunningPipeline(PIPELINE, clock, parting)
    starts = FailingMembers(EndedQuery("no such topic", Report(3)), "bad")
    running.add(SHARED, starts, starts.counts)
    running.refresh()
    assert parting.asked == []  # once may be a moment's trouble
    clock.now_s = 1.0
    running.refresh()
    running.refresh()
    assert parting.asked == [("source.orders", frozenset({"bad"}))]
    rest, alone = running.queries["source.orders"], running.queries["source.orders.bad"]
    assert list(rest.progress) == ["good"]
    assert list(alone.progress) == ["bad"]
    assert rest.handle is not None
    assert alone.is_waiting
    running.refresh()
    assert (rest.batch_id, alone.batch_id) == (7, 3)
    starts_by_second(running, clock, parting.alone, 100)
    assert [row.name for row in running.failed] == ["source.orders.bad"]
    assert running.is_active
    assert parting.rest.count == 1


def test_members_stay_together_when_all_of_them_fail(clock: Seconds) -> None:
    parting = Parting(Starts(LiveQuery()), Starts(FAILS))
    running = RunningPipeline(PIPELINE, clock, parting)
    starts = FailingMembers(FAILS)
    running.add(SHARED, starts, starts.counts)
    starts_by_second(running, clock, starts, 100)
    assert parting.asked == []
    assert [row.name for row in running.failed] == ["source.orders"]


def test_a_query_that_was_given_up_can_be_restarted(
    running: RunningPipeline, clock: Seconds
) -> None:
    starts = Starts(*[FAILS] * (1 + RETRIES_MAX), LiveQuery())
    running.add(query("revenue"), starts)
    starts_by_second(running, clock, starts, 100)
    assert running.failed
    running.restart("revenue")
    assert not running.failed
    assert running.is_active


def test_watching_ends_when_all_have_ended(running: RunningPipeline) -> None:
    running.add(query("a"), Starts(ENDS))
    running.watch(lambda: None, 0.0)
    running.raise_failure()


def test_the_table_fits_80_columns_and_has_dashes_before_the_first_batch(
    running: RunningPipeline,
) -> None:
    running.add(query("revenue_by_country_and_hour"), Starts(LiveQuery()))
    report = Report(9, sources=[{"numInputRows": 123_456_789}])
    running.add(query("busy"), Starts(LiveQuery(report)))
    running.refresh()
    head, waiting, busy = progress_lines(running, 0.0)
    assert head.split() == [
        "sink",
        "in/s",
        "out/s",
        "rows",
        "in",
        "rows",
        "out",
        "lag",
        "batch",
        "took",
    ]
    assert waiting.split() == ["revenue_by_countr…", *"-------"]
    assert busy.split() == ["busy", "246.9M", "0", "123.5M", "0", "0", "9", "0.5", "s"]
    assert len({len(head), len(waiting), len(busy)}) == 1
    assert len(head) < 80


def test_late_rows_and_dead_letters_with_their_reasons_are_told_below_the_table(
    running: RunningPipeline,
) -> None:
    late = Report(1, stateOperators=[{"numRowsDroppedByWatermark": 3}])
    running.add(query("revenue"), Starts(LiveQuery(late)))
    observed = {"rows": 7, "reasons": '[{"item":"is not UTF-8","count":5},{"item":"x","count":2}]'}
    letters = Report(1, observedMetrics={OUT_METRIC: observed})
    running.add(Query("dead-letter.orders", (), "orders"), Starts(LiveQuery(letters)))
    running.refresh()
    notes = progress_lines(running, 0.0)[3:]
    assert notes == [
        "  revenue: 3 rows came too late and are left out",
        "  dead-letter.orders: 7 (is not UTF-8 5, x 2)",
    ]
    assert summary_line(running) == "0 rows written, 7 dead letters, 3 rows too late"


def test_what_waits_and_what_has_failed_is_told_below_the_table(
    running: RunningPipeline, clock: Seconds
) -> None:
    starts = Starts(FAILS)
    running.add(query("revenue"), starts)
    running.refresh()
    assert progress_lines(running, 0.0)[-1] == "  revenue starts again in 1 s: no such topic"
    starts_by_second(running, clock, starts, 100)
    assert progress_lines(running, 0.0)[-1] == "  revenue has failed: no such topic"
