"""What starting a pipeline on its checkpoint would do to each query; told without Spark.

    safe                     goes on where it stopped, or has nothing to lose
    replays from the start   has no checkpoint yet, so it reads its sources from their `start`
    needs new state          its checkpoint does not fit: Spark would fail, or answer wrongly
    unknown                  the checkpoint was made by a version that kept no record; goes on
    removed                  no longer declared; its folder stays and nothing reads it

A query needs new state when it keeps state (windows, joins, distinct rows) and what the state is
made of has changed, when it has lost a topic that it was reading, and when a sink has to leave a
query that it shared. `new_state` gives it that: its folder is set aside and it reads from the start
again. `keep_state` starts it on the state it has, and leaves it to Spark to refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.declaration.lineage import digests, upstream_sources
from tidelog.pipeline.declaration.parts import PipelineError, Place, Problem
from tidelog.pipeline.queries.checkpoint import (
    LETTERS_PREFIX,
    OLD_LETTERS,
    files_of_a_stream,
    topics_read,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.pipeline.declaration.parts import Pipeline, Sink
    from tidelog.pipeline.queries.checkpoint import Checkpoint, QueryRecord

SAFE: Final = "safe"
REPLAYS: Final = "replays from the start"
NEW_STATE: Final = "needs new state"
UNKNOWN: Final = "unknown"
REMOVED: Final = "removed"


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    name: str  # of its folder in the checkpoint
    outcome: str
    reasons: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()  # as the file names them now
    letters_of: str = ""  # likewise


_NOTHING: Final = PlannedQuery("", SAFE)


@dataclass
class _Found:
    """One query while the plan is made; the gravest outcome counts."""

    name: str
    outcome: str = SAFE
    reasons: list[str] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)
    letters_of: str = ""

    def add(self, outcome: str, reason: str) -> None:
        if outcome != SAFE and self.outcome != NEW_STATE:
            self.outcome = outcome
        if reason not in self.reasons:
            self.reasons.append(reason)


class RestartPlan:
    """Of one declaration and one checkpoint."""

    def __init__(self, pipeline: Pipeline, checkpoint: Checkpoint) -> None:
        self.pipeline = pipeline
        self.checkpoint = checkpoint
        self._digests = digests(pipeline)
        self._found: dict[str, _Found] = {}
        self._renamed = self._renamed_sinks()
        for sink in pipeline.sinks:
            self._plan_sink(sink)
        for source in pipeline.lettered_sources:
            self._plan_letters(source.name)
        self._plan_removed()

    @property
    def queries(self) -> list[PlannedQuery]:
        return [
            PlannedQuery(
                row.name, row.outcome, tuple(row.reasons), tuple(row.sinks), row.letters_of
            )
            for row in self._found.values()
        ]

    def query(self, name: str) -> _Found:
        return self._found.setdefault(name, _Found(name))

    # Sinks

    def _renamed_sinks(self) -> dict[str, str]:
        """New names to old: a sink that writes the same rows to the same place is the same."""
        declared = {sink.name for sink in self.pipeline.sinks}
        free = {
            name: row
            for query in self.checkpoint.queries.values()
            for name, row in query.sinks.items()
            if name not in declared
        }
        found: dict[str, str] = {}
        for sink in self.pipeline.sinks:
            if self.checkpoint.query_of_sink(sink.name) is None and sink.target:
                content = (sink.kind, sink.target, self._digests[sink.source])
                same = [
                    name
                    for name, row in free.items()
                    if (row.kind, row.target, row.digest) == content and name not in found.values()
                ]
                if len(same) == 1:
                    found[sink.name] = same[0]
        return found

    def _plan_sink(self, sink: Sink) -> None:
        was = self._renamed.get(sink.name, sink.name)
        name = self.checkpoint.query_of_sink(was)
        if name is None:
            row = self.query(sink.name)
            row.sinks.append(sink.name)
            if self.checkpoint.has_folder(sink.name):
                row.add(UNKNOWN, "made by an older version of tidelog; goes on from there")
            else:
                row.add(REPLAYS, f"new; reads from {self._starts(sink)}")
            return
        row = self.query(name)
        row.sinks.append(sink.name)
        if was != sink.name:
            row.add(SAFE, f"sink {was} is now called {sink.name}")
        record = self.checkpoint.queries[name]
        self._compare_sink(row, record, sink, was)
        self._compare_sources(row, record, upstream_sources(self.pipeline, sink.source))

    def _starts(self, sink: Sink) -> str:
        names = upstream_sources(self.pipeline, sink.source)
        starts = {row.start for row in self.pipeline.sources if row.name in names}
        return starts.pop() if len(starts) == 1 else "the start of each source"

    def _compare_sink(self, row: _Found, record: QueryRecord, sink: Sink, was: str) -> None:
        old = record.sinks[was]
        if old.digest != self._digests[sink.source]:
            if record.keeps_state:
                told = f"what {sink.source} is made of has changed, and so would the state it keeps"
                row.add(NEW_STATE, told)
            else:
                row.add(SAFE, f"{sink.source} has changed; it counts for rows from now on")
        if old.mode != sink.mode and record.keeps_state:
            row.add(NEW_STATE, f"mode {old.mode} is now {sink.mode}")
        if (old.kind, old.target) != (sink.kind, sink.target):
            now = f"{sink.kind} {sink.target}".strip()
            row.add(SAFE, f"rows from now on go to {now}; the earlier ones stay where they are")
            if files_of_a_stream(sink) is not None:
                row.add(NEW_STATE, f"{sink.target} already has files of another query")

    def _compare_sources(self, row: _Found, record: QueryRecord, sources: Sequence[str]) -> None:
        by_name = {source.name: source for source in self.pipeline.sources}
        known = {self.checkpoint.spark_names[name]: name for name in sources}
        for spark_name, name in known.items():
            if spark_name not in record.sources:
                self._compare_added(row, record, name)
                continue
            if spark_name != name:
                row.add(SAFE, f"source {spark_name} is now called {name}")
            before = set(self.checkpoint.sources[spark_name])
            now = set(topics_read(by_name[name]))
            if gone := before - now:
                told = f"source {name} no longer reads {', '.join(sorted(gone))}"
                is_pattern = any(topic.startswith("/") for topic in before | now)
                if is_pattern:
                    told = f"source {name} now reads {', '.join(sorted(now))}; if a topic that was "
                    row.add(SAFE, told + "read is no longer found, the query fails and says so")
                else:
                    row.add(NEW_STATE, told)
            elif added := now - before:
                row.add(SAFE, f"source {name} also reads {', '.join(sorted(added))} now")
        for gone_source in set(record.sources) - set(known):
            if len(record.sinks) <= 1:
                self._compare_removed(row, record, gone_source)

    def _compare_added(self, row: _Found, record: QueryRecord, name: str) -> None:
        if record.is_named:
            row.add(SAFE, f"source {name} is new to it and is read from its start")
        else:
            told = f"source {name} is new to it, and its checkpoint knows sources by their order"
            row.add(NEW_STATE, told)

    def _compare_removed(self, row: _Found, record: QueryRecord, name: str) -> None:
        if record.is_named:
            row.add(SAFE, f"it no longer reads source {name}")
        else:
            told = f"source {name} is gone, and its checkpoint knows sources by their order"
            row.add(NEW_STATE, told)

    # Dead letters

    def _plan_letters(self, source: str) -> None:
        name = self.checkpoint.query_of_letters(source)
        if name is not None:
            row = self.query(name)
            row.letters_of = source
            self._compare_sources(row, self.checkpoint.queries[name], [source])
        elif self.checkpoint.has_folder(OLD_LETTERS) and not self.checkpoint.queries:
            row = self.query(OLD_LETTERS)
            if len(self.pipeline.lettered_sources) == 1:
                row.letters_of = source
                row.add(UNKNOWN, "made by an older version of tidelog; goes on from there")
            else:
                told = "older versions wrote the dead letters of all sources by one query; now "
                row.add(NEW_STATE, told + "each source has its own, and old letters come again")
        else:
            row = self.query(LETTERS_PREFIX + source)
            row.letters_of = source
            row.add(REPLAYS, "new; dead letters of all that is there")

    def _plan_removed(self) -> None:
        for name, record in self.checkpoint.queries.items():
            is_used = name in self._found
            if not is_used and (record.sinks or record.letters_of):
                row = self.query(name)
                row.add(REMOVED, f"nothing declares it; {self.checkpoint.address}/{name} stays")
            elif is_used:
                now = {self._renamed.get(sink, sink) for sink in self._found[name].sinks}
                for sink in sorted(set(record.sinks) - now):
                    self._found[name].add(SAFE, f"no longer writes sink {sink}")


def allowed(
    plan: RestartPlan, *, new_state: Iterable[str] = (), keep_state: Iterable[str] = ()
) -> RestartPlan:
    """The plan that may start, with what was asked for done to the checkpoint; raises for a query
    that needs new state and was not given any, and for names that are none."""
    checkpoint, pipeline = plan.checkpoint, plan.pipeline
    rows = {row.name: row for row in plan.queries}
    problems = []
    anew = set(new_state)
    kept = set(keep_state)
    sharing = {sink: row.name for row in rows.values() for sink in row.sinks if row.name != sink}
    for name in sorted((anew - sharing.keys() | kept) - rows.keys()):
        told = f'there is no query "{name}"; there is {", ".join(rows)}'
        problems.append(Problem(Place(pipeline.file, 0), told))
    for row in rows.values():
        if row.outcome == NEW_STATE and row.name not in anew | kept:
            problems.append(Problem(Place(pipeline.file, _line(pipeline, row)), _refusal(row)))
    if OLD_LETTERS in kept and rows.get(OLD_LETTERS, _NOTHING).outcome == NEW_STATE:
        told = f"the state of query {OLD_LETTERS} cannot be kept; only --new-state helps"
        problems.append(Problem(Place(pipeline.file, 0), told))
    if anew and not checkpoint.is_local:
        told = f"--new-state cannot move folders of {checkpoint.address}; delete the query's folder"
        problems.append(Problem(Place(pipeline.file, 0), told))
    for name in sorted(anew & rows.keys()):
        problems += _occupied(pipeline, rows[name])
    if problems:
        raise PipelineError(*problems)
    for name in sorted(anew):
        if name in sharing and name not in rows:
            checkpoint.forget_sink(name)
            continue
        if checkpoint.has_folder(name):
            checkpoint.set_aside(name)
        checkpoint.forget(name)
    return RestartPlan(pipeline, checkpoint) if anew else plan


def refuse_occupied(pipeline: Pipeline, plan: RestartPlan) -> None:
    """Parquet folders that a new query would seem to write and Spark would leave as they are."""
    problems = [
        problem
        for row in plan.queries
        if row.outcome == REPLAYS
        for problem in _occupied(pipeline, row)
    ]
    if problems:
        raise PipelineError(*problems)


def _occupied(pipeline: Pipeline, row: PlannedQuery) -> list[Problem]:
    sinks = [sink for sink in pipeline.sinks if sink.name in row.sinks]
    return [
        Problem(
            Place(pipeline.file, sink.line),
            f"[sink.{sink.name}] {folder} has the files of an earlier query, and Spark would leave "
            f"out the first batches of this one; move it away, or name another folder",
        )
        for sink in sinks
        if (folder := files_of_a_stream(sink)) is not None
    ]


def _line(pipeline: Pipeline, row: PlannedQuery) -> int:
    lines = [sink.line for sink in pipeline.sinks if sink.name in row.sinks]
    lines += [source.line for source in pipeline.sources if source.name == row.letters_of]
    return lines[0] if lines else 0


def _refusal(row: PlannedQuery) -> str:
    told = f"query {row.name} needs new state: {'; '.join(row.reasons)}. Run with --new-state "
    return (
        f"{told}{row.name} to set its checkpoint aside and read from the start again, or with "
        f"--keep-state {row.name} to go on with the state it has"
    )


def plan_lines(plan: RestartPlan) -> list[str]:
    """For people."""
    lines = []
    for row in plan.queries:
        lines.append(f"  {row.name:<24} {row.outcome}")
        lines += [f"    {reason}" for reason in row.reasons]
    return lines
