"""Rows of a batch written to topics, inside a query whose batches Spark hands to Python.

`SharedWriter` writes what several sinks make of one source, and its dead letters. It parses a
record once: rows are kept while several sinks read them; where there is one sink, dead letters are
looked for only in batches that have some. `UpdateWriter` writes the rows of a query in update mode,
which Spark's streaming sinks in Python cannot be asked for.

Each write of a batch is a job of its own, which the connector knows by the query, the sink and the
batch. So a batch that is repeated is written once, unless the sink is to be written at least once.
When this process repeats a batch, it leaves out the members that have it already.

A member that fails does not keep the rows of the batch from the others. `BatchCounts.failed` says
who it was, so that it can leave the query (running).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration.lineage import upstream_views
from tidelog.pipeline.declaration.parts import EXACTLY_ONCE, PipelineError
from tidelog.pipeline.frames.dataframes import frames_of_batch
from tidelog.pipeline.frames.sink_rows import sink_rows, topic_options
from tidelog.pipeline.queries.checkpoint import LETTERS_PREFIX
from tidelog.pipeline.spark_errors import spark_exception
from tidelog.spark.decoding import REASON, dead_letters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from tidelog.pipeline.declaration.parts import Pipeline, Sink, Source

BATCHES_KEPT_MAX: Final = 100
REASONS_MAX: Final = 20
OBSERVED_TIMEOUT_S: Final = 10.0
_OBSERVED_POLL_S: Final = 0.005
# The text of a reason without what it quotes of the record.
_REASON_KIND: Final = rf"regexp_replace({REASON}, '^(field [^:]+): .* is no ', '$1: is no ')"


def row_metrics() -> list[Column]:
    """To be observed of what a sink writes."""
    from pyspark.sql import functions as F

    return [F.count(F.lit(1)).alias("rows")]


def letter_metrics() -> list[Column]:
    """To be observed of dead letters: how many, and why."""
    from pyspark.sql import functions as F

    reasons = F.expr(f"to_json(approx_top_k({_REASON_KIND}, {REASONS_MAX}))")
    return [*row_metrics(), reasons.alias("reasons")]


def reasons_of(told: str | None) -> Counter[str]:
    """From what `letter_metrics` observed."""
    rows = json.loads(told) if told else []
    return Counter({row["item"]: int(row["count"]) for row in rows if "item" in row})


class BatchCounts:
    """Rows that went to each member, by batch; the newest batches are kept. The query's thread
    writes them, the main thread reads.
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.unexpected: Counter[str] = Counter()  # rows dropped, by expectation
        # Members that failed in the last batch while others have written it.
        self.failed: frozenset[str] = frozenset()
        self._rows: dict[int, dict[str, int]] = {}

    def add(self, batch_id: int, member: str, rows: int) -> None:
        self._rows.setdefault(batch_id, {})[member] = rows
        for old in sorted(self._rows)[:-BATCHES_KEPT_MAX]:
            del self._rows[old]

    def has(self, batch_id: int, member: str) -> bool:
        return member in self._rows.get(batch_id, {})

    def of(self, batch_id: int, member: str) -> int:
        return self._rows.get(batch_id, {}).get(member, 0)


class SharedWriter:
    def __init__(
        self,
        pipeline: Pipeline,
        source: Source,
        sinks: tuple[Sink, ...],
        *,
        has_letters: bool,
        writer: str = "",
        counts: BatchCounts | None = None,
    ) -> None:
        """`writer` marks the batches; it is the query's own id if it is not given."""
        self.writer = writer
        self.pipeline = pipeline
        self.source = source
        self.sinks = sinks
        self.has_letters = has_letters
        self.counts = counts or BatchCounts()
        names = {name for sink in sinks for name in upstream_views(pipeline, sink.source)}
        self._views = [view for view in pipeline.views if view.name in names]

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Every member gets its rows, though another fails; the first failure is raised then."""
        is_kept = len(self.sinks) > 1
        rows = rows.persist() if is_kept else rows
        failures: dict[str, Exception] = {}
        dropped: dict[str, _Observed] = {}
        written: set[str] = set()
        try:
            members = self._members(batch_id, rows, is_kept, dropped)
            for name, write in members.items():
                if not self.counts.has(batch_id, name):
                    try:
                        self.counts.add(batch_id, name, write())
                        written.add(name)
                    except (spark_exception(), PipelineError) as failure:
                        failures[name] = failure
        finally:
            if is_kept:
                rows.unpersist()
        self.counts.failed = frozenset(failures) if len(failures) < len(members) else frozenset()
        if failures:
            raise next(iter(failures.values()))
        self._count_dropped(dropped, [sink for sink in self.sinks if sink.name in written])

    def _count_dropped(self, dropped: Mapping[str, _Observed], written: Sequence[Sink]) -> None:
        """By expectations that the rows have passed which were written now: where nobody has read
        them, Spark has counted nothing."""
        read = {part for sink in written for part in upstream_views(self.pipeline, sink.source)}
        read |= {self.source.name} if written else set()
        for row in self.pipeline.expectations:
            if row.name in dropped and row.on in read:
                count = dropped[row.name].wait().get("rows", 0)
                self.counts.unexpected[row.name] += int(count)

    def _members(
        self, batch_id: int, rows: DataFrame, is_kept: bool, dropped: dict[str, _Observed]
    ) -> dict[str, Callable[[], int]]:
        def observe(frame: DataFrame, name: str, metric: Column) -> DataFrame:
            dropped[name] = _Observed(frame, [metric])
            return dropped[name].frame

        broken = None if is_kept or not self.has_letters or not self.sinks else _Broken(rows)
        read = rows if broken is None else broken.observed
        frames = frames_of_batch(self.pipeline, self.source, read, self._views, observe)
        members: dict[str, Callable[[], int]] = {}
        for sink in self.sinks:
            written = sink_rows(self.pipeline, sink, frames[sink.source])
            members[sink.name] = partial(self._sink, batch_id, sink, written, broken)
        if self.has_letters:
            letters = dead_letters(rows, self.source.dead_letter, self.source.name)
            write = partial(self._letters, batch_id, letters, broken)
            members[LETTERS_PREFIX + self.source.name] = write
        return members

    def _sink(self, batch_id: int, sink: Sink, rows: DataFrame, broken: _Broken | None) -> int:
        count = write_topic(self.pipeline, sink, rows, batch_id, self.writer)
        if broken is not None:
            broken.is_read = True
        return count

    def _letters(self, batch_id: int, letters: DataFrame, broken: _Broken | None) -> int:
        if broken is not None and broken.count == 0:
            return 0
        found = _Observed(letters, letter_metrics())
        member = LETTERS_PREFIX + self.source.name
        options = topic_options(self.pipeline, None)
        save_batch(found.frame.drop(REASON), options, member, batch_id, self.writer)
        told = found.wait()
        self.counts.reasons += reasons_of(told.get("reasons"))
        return int(told.get("rows", 0))


class UpdateWriter:
    def __init__(self, pipeline: Pipeline, sink: Sink) -> None:
        self.pipeline = pipeline
        self.sink = sink
        self.counts = BatchCounts()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if not self.counts.has(batch_id, self.sink.name):
            written = write_topic(self.pipeline, self.sink, rows, batch_id)
            self.counts.add(batch_id, self.sink.name, written)


def write_topic(
    pipeline: Pipeline, sink: Sink, rows: DataFrame, batch_id: int, writer: str = ""
) -> int:
    """The number of rows."""
    found = _Observed(rows, row_metrics())
    save_batch(found.frame, topic_options(pipeline, sink), f"sink.{sink.name}", batch_id, writer)
    return int(found.wait().get("rows", 0))


def save_batch(
    rows: DataFrame, options: dict[str, str], member: str, batch_id: int, writer: str
) -> None:
    """Exactly once by `writer`, member and batch; the id of the query stands for no writer."""
    if options["deliveryGuarantee"] == EXACTLY_ONCE:
        context = rows.sparkSession.sparkContext
        writer = writer or context.getLocalProperty("sql.streaming.queryId") or ""
        assert writer, "only streaming queries write"
        options = {**options, "txnAppId": f"{writer}.{member}", "txnVersion": str(batch_id)}
    rows.write.format("tidelog").mode("append").options(**options).save()


class _Observed:
    """A frame that is counted while it is written. Spark tells the counts a moment later, and not
    at all when its optimiser found that there can be no rows."""

    def __init__(self, frame: DataFrame, metrics: list[Column]) -> None:
        from pyspark.sql import Observation

        self._observation: Any = Observation()
        self.frame = frame.observe(self._observation, *metrics)

    def wait(self) -> dict[str, Any]:
        future = self._observation._jo.future()
        give_up_at_s = time.monotonic() + OBSERVED_TIMEOUT_S
        while not future.isCompleted():
            if time.monotonic() > give_up_at_s:
                return {}
            time.sleep(_OBSERVED_POLL_S)
        found: dict[str, Any] = self._observation.get
        return found


class _Broken:
    """How many of the rows are broken, known once `observed` was read to its end (`is_read`)."""

    def __init__(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F

        self._found = _Observed(rows, [F.count_if(F.col(REASON).isNotNull()).alias("broken")])
        self.observed = self._found.frame
        self.is_read = False

    @property
    def count(self) -> int | None:
        """None when nobody knows."""
        told: int | None = self._found.wait().get("broken") if self.is_read else None
        return told
