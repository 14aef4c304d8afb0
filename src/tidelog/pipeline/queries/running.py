"""A pipeline's queries while they run, and how far they are.

A query that fails is started again from its checkpoint, after 1, 2, 4, 8 and 16 seconds; others run
meanwhile. Once it has finished a batch its failures are forgotten. After five failures in a row it
stays down, and the pipeline's exit code will be 1. `RunningPipeline` belongs to the main thread.

A member of a shared query that fails twice in a row, while others have written the batch, leaves
the query and gets one of its own: it fails and waits alone, and the others go on.

Spark gives a Python worker ten seconds to start, and fails the query if the machine is too busy for
that. Queries that start together would then fail together again and again, so each of these waits
longer than the one before it.

How far a query is comes out of the progress reports that Spark makes. Rows out are counted by an
observed metric, since not every sink of Spark counts what it writes. Lag is what the source has
seen in the topics and not yet read.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.pipeline.declaration.parts import PipelineError, Place, Problem
from tidelog.pipeline.queries.topic_writer import reasons_of
from tidelog.pipeline.spark_errors import spark_exception, summary
from tidelog.spark.expectations import EXPECTATION_FAILED, dropped_rows
from tidelog.spark.lag import source_lag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.pipeline.declaration.parts import Pipeline
    from tidelog.pipeline.queries.layout import Query
    from tidelog.pipeline.queries.topic_writer import BatchCounts


class Start(Protocol):
    """How one query starts, once or again."""

    query: Query
    counts: BatchCounts | None

    def __call__(self) -> StreamingQuery: ...


# A query, the members that leave it, what it has counted; what is left comes first.
Part = Callable[["Query", frozenset[str], "BatchCounts"], Sequence[Start]]

logger = logging.getLogger(__name__)

RETRIES_MAX: Final = 5  # of one query, in a row
FIRST_RETRY_S: Final = 1.0
FAILURES_TOGETHER: Final = 2  # in a row, before a member has to leave a shared query
WORKER_TOO_SLOW: Final = "Python worker failed to connect back"
WORKER_START_S: Final = 10.0  # what Spark allows
OUT_METRIC: Final = "tidelog_rows_out"


class QueryProgress:
    """Of one member of a query. Reports may be given more than once; each counts once. Rows out
    are those that Spark observed, or those that a writer of ours has counted."""

    def __init__(self, member: str = "", counts: BatchCounts | None = None) -> None:
        self.member = member
        self.reasons: Counter[str] = Counter()  # of dead letters
        self.unexpected: Counter[str] = Counter()  # rows dropped, by expectation
        self.counts = counts
        self.batch_id = -1
        self.rows_in = 0
        self.rows_out = 0
        self.rows_in_per_s = 0.0
        self.rows_out_per_s = 0.0
        self.lag = 0
        self.batch_ms = 0
        self.rows_too_late = 0
        self._last = ""

    def take(self, progress: Mapping[str, Any]) -> None:
        moment = str(progress["timestamp"])
        if moment <= self._last:
            return
        self._last = moment
        rows_in = sum(int(source["numInputRows"]) for source in progress["sources"])
        rows_out = self._rows_out(progress)
        batch_ms = int(progress["durationMs"].get("triggerExecution", 0))
        self.batch_id = int(progress["batchId"])
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.rows_too_late += sum(
            int(operator.get("numRowsDroppedByWatermark", 0))
            for operator in progress.get("stateOperators", ())
        )
        self.lag = sum(sum(source_lag(source).values()) for source in progress["sources"])
        if "addBatch" in progress["durationMs"]:
            self.batch_ms = batch_ms
        seconds = max(batch_ms, 1) / 1000
        self.rows_in_per_s = rows_in / seconds
        self.rows_out_per_s = rows_out / seconds

    def _rows_out(self, progress: Mapping[str, Any]) -> int:
        if self.counts is not None:
            has_run = "addBatch" in progress["durationMs"]
            return self.counts.of(int(progress["batchId"]), self.member) if has_run else 0
        for name, count in dropped_rows(progress).items():
            self.unexpected[name] += count
        observed = _observed(progress)
        self.reasons += reasons_of(observed[1] if len(observed) > 1 else None)
        return int(observed[0] or 0)


def _observed(progress: Mapping[str, Any]) -> list[Any]:
    """Values of the metric: by name, or alone as Spark Connect reports them."""
    observed = progress.get("observedMetrics", {}).get(OUT_METRIC) or {}
    values: list[Any] = observed.get("values", [observed.get("rows"), observed.get("reasons")])
    return values


class RunningQuery:
    """One query through its starts. `handle` is None while it waits for another start, and when it
    has been given up (`failure` says why then)."""

    def __init__(
        self, query: Query, start: Callable[[], StreamingQuery], counts: BatchCounts | None
    ) -> None:
        self.query = query
        self.counts = counts
        self.progress = {name: QueryProgress(name, counts) for name in query.members}
        self.handle: StreamingQuery | None = None
        self.restarts = 0
        self.failures_in_a_row = 0
        self.last_error = ""
        self.failure = ""  # why it was given up
        self.retry_at_s = 0.0
        self._start = start
        self._batch_at_start = -1

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def is_waiting(self) -> bool:
        return self.handle is None and not self.failure

    @property
    def is_done(self) -> bool:
        """Whether it has ended by itself, or was given up."""
        return bool(self.failure) or (self.handle is not None and not self.handle.isActive)

    @property
    def batch_id(self) -> int:
        return max((row.batch_id for row in self.progress.values()), default=-1)

    def start(self) -> None:
        self._batch_at_start = self.batch_id
        if self.counts is not None:
            self.counts.failed = frozenset()
        self.handle = self._start()

    def take_progress(self) -> None:
        if self.handle is None:
            return
        for report in _progress_reports(self.handle):
            told = json.loads(report)
            for row in self.progress.values():
                row.take(told)
        if self.batch_id > self._batch_at_start:
            self.failures_in_a_row = 0

    def fail(self, error: BaseException, now_s: float, queries_before: int = 0) -> None:
        self.handle = None
        self.last_error = summary(error)
        self.failures_in_a_row += 1
        if is_final(error) or self.failures_in_a_row > RETRIES_MAX:
            self.failure = self.last_error
            return
        self.retry_at_s = now_s + FIRST_RETRY_S * 2 ** (self.failures_in_a_row - 1)
        if WORKER_TOO_SLOW in str(error):
            self.retry_at_s += WORKER_START_S * queries_before
        logger.warning(
            "query %s failed and starts again in %.0f s: %s",
            *(self.name, self.retry_at_s - now_s, self.last_error),
        )

    @property
    def leaving(self) -> frozenset[str]:
        """Members that have to go on alone."""
        if self.counts is None or self.failures_in_a_row < FAILURES_TOGETHER or self.failure:
            return frozenset()
        return self.counts.failed

    def go_on_for(self, other: RunningQuery) -> None:
        """With the figures of the members that the other one has had."""
        for name in self.progress:
            self.progress[name] = other.progress[name]
            self.progress[name].counts = self.counts

    def wait_as(self, other: RunningQuery) -> None:
        self.failures_in_a_row = other.failures_in_a_row
        self.last_error = other.last_error
        self.retry_at_s = other.retry_at_s

    def start_again(self, now_s: float) -> None:
        self.restarts += 1
        try:
            self.start()
        except PipelineError as error:
            self.fail(error, now_s)

    def stop(self) -> None:
        if self.handle is not None:
            self.handle.stop()


def is_final(error: BaseException) -> bool:
    """Whether another start would end the same way: an expectation was set to stop the query."""
    return EXPECTATION_FAILED in str(error)


class RunningPipeline:
    """Queries that were started together and stop together."""

    def __init__(
        self,
        pipeline: Pipeline,
        now_s: Callable[[], float] = time.monotonic,
        part: Part | None = None,
    ) -> None:
        """`part` takes members out of a shared query; without it they stay."""
        self.pipeline = pipeline
        self.queries: dict[str, RunningQuery] = {}
        self._now_s = now_s
        self._part = part

    def add(
        self,
        query: Query,
        start: Callable[[], StreamingQuery],
        counts: BatchCounts | None = None,
    ) -> None:
        row = RunningQuery(query, start, counts)
        row.start()
        self.queries[query.name] = row

    @property
    def progress(self) -> dict[str, QueryProgress]:
        """Of every sink, and of the dead letters of every source."""
        rows = [row.progress for row in self.queries.values()]
        return {name: progress for row in rows for name, progress in row.items()}

    @property
    def unexpected(self) -> dict[str, int]:
        """Rows that each expectation has dropped. Queries that read the same rows count them all,
        so the one that has come furthest counts."""
        found: dict[str, int] = {}
        for query in self.queries.values():
            counters = [row.unexpected for row in query.progress.values()]
            counters += [query.counts.unexpected] if query.counts is not None else []
            for counter in counters:
                for name, count in list(counter.items()):
                    found[name] = max(found.get(name, 0), count)
        return found

    @property
    def is_active(self) -> bool:
        return not all(row.is_done for row in self.queries.values())

    @property
    def failed(self) -> list[RunningQuery]:
        return [row for row in self.queries.values() if row.failure]

    def refresh(self) -> None:
        """Takes in Spark's newest progress reports, and starts again what has failed and waited."""
        now_s = self._now_s()
        for number, row in enumerate(list(self.queries.values())):
            row.take_progress()
            if row.handle is not None and not row.handle.isActive:
                error = row.handle.exception()
                if error is not None:
                    row.fail(error, now_s, number)
                    if self._part is not None and row.leaving:
                        self._let_go(row, self._part, now_s)
                        continue
            if row.is_waiting and now_s >= row.retry_at_s:
                row.start_again(now_s)

    def _let_go(self, row: RunningQuery, part: Part, now_s: float) -> None:
        """The query goes on at once with those that can; the others wait as it would have."""
        assert row.counts is not None, row.name
        logger.warning(
            "query %s goes on without %s, which has a query of its own from now on",
            *(row.name, ", ".join(sorted(row.leaving))),
        )
        rest, *alone = [
            RunningQuery(start.query, start, start.counts)
            for start in part(row.query, row.leaving, row.counts)
        ]
        for made in (rest, *alone):
            made.go_on_for(row)
            self.queries[made.name] = made
        for made in alone:
            made.wait_as(row)
        rest.restarts = row.restarts
        rest.start_again(now_s)

    def restart(self, name: str) -> None:
        """Stops a query and starts it from its checkpoint, with no failure held against it."""
        row = self.queries[name]
        row.stop()
        row.take_progress()
        row.failure, row.failures_in_a_row = "", 0
        row.start_again(self._now_s())

    def process_all_available(self) -> None:
        """Waits until everything that is in the topics by now has been written; raises what made a
        query fail."""
        done: set[str] = set()
        while left := [name for name in self.queries if name not in done]:
            if self._has_processed_all(self.queries[left[0]]):
                done.add(left[0])
                continue
            time.sleep(FIRST_RETRY_S / 10)
            self.refresh()

    def _has_processed_all(self, row: RunningQuery) -> bool:
        self.raise_failure()
        if row.handle is None:
            return False
        try:
            row.handle.processAllAvailable()
        except spark_exception():
            return False
        return True

    def stop(self) -> None:
        for row in self.queries.values():
            row.stop()

    def watch(self, show: Callable[[], None], poll_s: float) -> None:
        """Until all queries have ended by themselves or were given up."""
        while True:
            was_active = self.is_active
            self.refresh()
            if not was_active and not self.is_active:
                return
            show()
            time.sleep(poll_s)

    def raise_failure(self) -> None:
        """What made queries stay down, with the lines of their sinks."""
        problems = [
            Problem(Place(self.pipeline.file, _line(self.pipeline, row.query)), _told(row))
            for row in self.failed
        ]
        if problems:
            raise PipelineError(*problems)


def _told(row: RunningQuery) -> str:
    sinks = " ".join(f"[sink.{sink.name}]" for sink in row.query.sinks)
    what = sinks or f"the query of dead letters of [source.{row.query.letters_of}]"
    return f"{what} failed: {row.failure}"


def _line(pipeline: Pipeline, query: Query) -> int:
    if query.sinks:
        return query.sinks[0].line
    return next((row.line for row in pipeline.sources if row.name == query.letters_of), 0)


def _progress_reports(query: Any) -> list[str]:
    """As JSON. A classic session would fetch every field of every report by a call of its own, so
    its JVM object is asked instead."""
    in_jvm = getattr(query, "_jsq", None)
    if in_jvm is None:
        return [progress.json for progress in query.recentProgress]
    return [progress.json() for progress in in_jvm.recentProgress()]
