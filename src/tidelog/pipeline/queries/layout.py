"""Which queries a pipeline runs, and what each of them writes.

Sinks share a query, and with it one reading and parsing of their source, when each of them
    writes a topic in append mode
    reads one source alone, and the same one
    keeps no state: no aggregation, join of streams, distinct rows or limit
The dead letters of the source come out of the same query. Every other sink has a query of its own,
and then the dead letters of its source have one too.

A sink stays in the query where an earlier run has had it (restart_plan). A sink that is new to a
checkpoint joins no query that has already read something: it would miss what was read before.

Spark keeps the offsets of sources by name, where it can: a query may then lose, gain and reorder
sources. It cannot when a query reads the same source twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration.lineage import upstream_sources
from tidelog.pipeline.declaration.parts import TOPIC
from tidelog.pipeline.queries.checkpoint import (
    LETTERS_PREFIX,
    OLD_LETTERS,
    SHARED_PREFIX,
    QueryRecord,
    sink_record,
)
from tidelog.pipeline.queries.restart_plan import REMOVED, REPLAYS
from tidelog.spark.options import COMMIT_GROUP_ID
from tidelog.spark.record_format import RAW

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from tidelog.pipeline.declaration.parts import Pipeline, Sink
    from tidelog.pipeline.queries.checkpoint import Checkpoint
    from tidelog.pipeline.queries.restart_plan import RestartPlan

# Operators of Spark's analysed plans that treat every row by itself.
_ROW_BY_ROW: Final = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "View", "Generate", "EventTimeWatermark"),
        *("StreamingRelationV2", "CollectMetrics", "MapInPandas", "MapInArrow", "LocalRelation"),
        *("OneRowRelation", "ResolvedHint", "Union", "Join"),
    )
)


@dataclass(frozen=True, slots=True)
class Query:
    name: str  # of its folder in the checkpoint
    sinks: tuple[Sink, ...]
    letters_of: str = ""  # a source
    is_shared: bool = False  # whether it reads one source for all that it writes
    keeps_state: bool = False
    is_named: bool = False
    writer: str = ""  # the id that marks its batches, if it goes on for another query

    @property
    def members(self) -> list[str]:
        """Whatever has rows of its own to count."""
        letters = [LETTERS_PREFIX + self.letters_of] if self.letters_of else []
        return [sink.name for sink in self.sinks] + letters


class PlanShape:
    """What is told by the analysed plan of a sink. Spark Connect shows none, so there everything is
    possible."""

    def __init__(self, frame: DataFrame, *, is_remote: bool, has_names: bool) -> None:
        self.is_row_by_row = False
        self.has_unique_sources = False
        if is_remote:
            return
        plan: Any = frame._jdf.queryExecution().analyzed()
        self.is_row_by_row = _is_row_by_row(plan)
        if not has_names:
            return
        leaves = plan.collectLeaves()
        names = [
            str(leaves.apply(index).sourceIdentifyingName())
            for index in range(leaves.size())
            if leaves.apply(index).isStreaming()
        ]
        self.has_unique_sources = len(names) == len(set(names))


def _is_row_by_row(plan: Any) -> bool:
    if not plan.isStreaming():
        return True
    if plan.nodeName() not in _ROW_BY_ROW:
        return False
    found = plan.children()
    children = [found.apply(index) for index in range(found.size())]
    if plan.nodeName() == "Join" and all(child.isStreaming() for child in children):
        return False
    return all(_is_row_by_row(child) for child in children)


def lay_out(
    pipeline: Pipeline,
    plan: RestartPlan,
    shapes: Mapping[str, PlanShape],
    *,
    has_names: bool,
) -> list[Query]:
    """Raises PipelineError if a sink can no longer stay in the query that it shares. New queries
    know their sources by name if there are `has_names` for them."""
    sinks = {sink.name: sink for sink in pipeline.sinks}
    shared: dict[str, list[Sink]] = {}
    queries: list[Query] = []
    new_letters = {row.letters_of for row in plan.queries if _is_new_letters(row.name, row.outcome)}
    for row in plan.queries:
        members = tuple(sinks[name] for name in row.sinks)
        if row.outcome == REMOVED or row.letters_of in new_letters:
            continue
        if row.outcome == REPLAYS and len(members) == 1:
            source = _source_to_share(pipeline, members[0], shapes)
            if source is not None and _may_begin_to_share(pipeline, plan, source, new_letters):
                shared.setdefault(source, []).append(members[0])
                continue
        is_shared = row.name.startswith(SHARED_PREFIX)
        queries.append(Query(row.name, members, row.letters_of, is_shared))
    for source, members_of_source in shared.items():
        queries += _new_shared(source, members_of_source, new_letters)
    queries += [
        Query(LETTERS_PREFIX + name, (), name) for name in sorted(new_letters - shared.keys())
    ]
    for query in queries:
        _check_sharing(pipeline, query, shapes)
    _check_groups(pipeline, queries)
    return [_with_shape(query, plan.checkpoint, shapes, has_names) for query in queries]


def _is_new_letters(name: str, outcome: str) -> bool:
    return name.startswith(LETTERS_PREFIX) and outcome == REPLAYS


def _may_begin_to_share(
    pipeline: Pipeline, plan: RestartPlan, source: str, new_letters: Collection[str]
) -> bool:
    """Whether nobody has read the source for a shared query yet, nor its dead letters alone."""
    name = SHARED_PREFIX + source
    if name in plan.checkpoint.queries or plan.checkpoint.has_folder(name):
        return False
    return source in new_letters or _is_raw(pipeline, source)


def _is_raw(pipeline: Pipeline, name: str) -> bool:
    return next(row for row in pipeline.sources if row.name == name).format.kind == RAW


def _source_to_share(pipeline: Pipeline, sink: Sink, shapes: Mapping[str, PlanShape]) -> str | None:
    sources = upstream_sources(pipeline, sink.source)
    can_share = sink.kind == TOPIC and sink.mode == "append"
    is_alone = len(sources) == 1 and shapes[sink.name].is_row_by_row
    return sources[0] if can_share and is_alone else None


def _new_shared(source: str, sinks: list[Sink], new_letters: Collection[str]) -> list[Query]:
    """One raw sink alone has nothing to share."""
    letters = source if source in new_letters else ""
    if not letters and len(sinks) == 1:
        return [Query(sinks[0].name, tuple(sinks))]
    return [Query(SHARED_PREFIX + source, tuple(sinks), letters, is_shared=True)]


def _check_sharing(pipeline: Pipeline, query: Query, shapes: Mapping[str, PlanShape]) -> None:
    if not query.is_shared:
        return
    found = {sink.name: _source_to_share(pipeline, sink, shapes) for sink in query.sinks}
    source = query.letters_of or next(filter(None, found.values()), None)
    for sink in query.sinks:
        if source is None or found[sink.name] != source:
            raise pipeline.error(
                sink.line,
                f"[sink.{sink.name}] shares query {query.name}, which reads {source} once for "
                f"several sinks, and can no longer: it needs a query of its own. Run with "
                f"--new-state {sink.name} to give it one that reads from the start",
            )


def _check_groups(pipeline: Pipeline, queries: Sequence[Query]) -> None:
    """A group tells how far one query is. Two would write their offsets over each other."""
    for source in pipeline.sources:
        if not any(name.lower() == COMMIT_GROUP_ID.lower() for name in source.options):
            continue
        readers = [query.name for query in queries if source.name in _read_by(pipeline, query)]
        if len(readers) > 1:
            raise pipeline.error(
                source.line,
                f"[source.{source.name}] option {COMMIT_GROUP_ID}: it is for a source that one "
                f"query reads, and {len(readers)} read this one ({', '.join(readers)}). "
                "`tidelog pipeline status` tells how far each is",
            )


def _read_by(pipeline: Pipeline, query: Query) -> list[str]:
    """Names of sources, each once."""
    read = [query.letters_of] if query.letters_of else []
    for sink in query.sinks:
        read += upstream_sources(pipeline, sink.source)
    return list(dict.fromkeys(read))


def _with_shape(
    query: Query, checkpoint: Checkpoint, shapes: Mapping[str, PlanShape], has_names: bool
) -> Query:
    own = [shapes[sink.name] for sink in query.sinks]
    record = checkpoint.queries.get(query.name)
    if record is not None:
        is_named = record.is_named
    else:
        is_new = not checkpoint.has_folder(query.name)
        has_unique = query.is_shared or all(shape.has_unique_sources for shape in own)
        is_named = has_names and is_new and has_unique
    keeps_state = any(not shape.is_row_by_row for shape in own)
    writer = "" if record is None else record.writer
    return replace(query, keeps_state=keeps_state, is_named=is_named, writer=writer)


def without_members(query: Query, leaving: Collection[str]) -> Query:
    """What is left of a shared query."""
    sinks = tuple(sink for sink in query.sinks if sink.name not in leaving)
    letters = LETTERS_PREFIX + query.letters_of
    return replace(query, sinks=sinks, letters_of="" if letters in leaving else query.letters_of)


def member_alone(query: Query, member: str, writer: str) -> Query:
    """A query for what has left a shared one, which marks its batches as the shared one did."""
    others = set(query.members) - {member}
    name = member if member in (sink.name for sink in query.sinks) else OLD_LETTERS
    return replace(without_members(query, others), name=f"{query.name}.{name}", writer=writer)


def records(
    pipeline: Pipeline, checkpoint: Checkpoint, queries: list[Query]
) -> dict[str, QueryRecord]:
    """What the checkpoint should know of them."""
    names = checkpoint.spark_names
    found = {}
    for query in queries:
        found[query.name] = QueryRecord(
            sources=tuple(names[source] for source in _read_by(pipeline, query)),
            sinks={sink.name: sink_record(pipeline, sink) for sink in query.sinks},
            letters_of=names[query.letters_of] if query.letters_of else "",
            keeps_state=query.keeps_state,
            is_named=query.is_named,
            writer=query.writer,
        )
    return found
