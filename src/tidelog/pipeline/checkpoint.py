"""The checkpoint of a pipeline: a folder for each query, and a record of what made them.

    <checkpoint>/<sink>                  the query of one sink
    <checkpoint>/source.<source>         the query that sinks of one source share
    <checkpoint>/dead-letter.<source>    dead letters of a source, where no sink shares with them
    <checkpoint>/dead-letter             dead letters of all sources, by tidelog 0.1
    <checkpoint>/pipeline.json           the record, replaced as a whole when a run starts

Spark knows a query by its folder alone, and takes what it finds there for the state of whatever
query is started on it. The record says what each query read, kept and wrote, so that the next run
can tell what has changed (restart_plan). Queries that are no longer declared stay in it, as their
folders stay.

A digest stands for all that state depends on: SQL, schemas, watermarks, Python files. Names are not
part of it: in SQL the names of sources and views are replaced by their digests, so renaming changes
nothing.

A checkpoint at an address of another file system is not looked into; its record is kept beside the
pipeline's file instead, in .tidelog.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration import PARQUET, PipelineError, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.pipeline.declaration import Pipeline, Sink, Source, View

RECORD_NAME: Final = "pipeline.json"
RECORD_VERSION: Final = 1
SHARED_PREFIX: Final = "source."
LETTERS_PREFIX: Final = "dead-letter."
# One query for the dead letters of all sources, as tidelog 0.1 had it.
OLD_LETTERS: Final = "dead-letter"


@dataclass(frozen=True, slots=True)
class SinkRecord:
    kind: str
    target: str
    mode: str
    digest: str  # of what it writes


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """What one query was when it was last started."""

    sources: tuple[str, ...]  # as Spark knows them
    sinks: Mapping[str, SinkRecord] = field(default_factory=dict)
    letters_of: str = ""  # the source whose dead letters it writes, as Spark knows it
    keeps_state: bool = False
    is_named: bool = True  # Spark knows its sources by name, else by their order

    def without_sinks(self, names: Iterable[str]) -> QueryRecord:
        left = set(self.sinks) - set(names)
        return replace(self, sinks={name: self.sinks[name] for name in self.sinks if name in left})


class Checkpoint:
    """Read once, when it is made. `save` replaces the record; nothing else here writes but
    `set_aside`.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.address = pipeline.checkpoint
        self.is_local = "://" not in pipeline.checkpoint
        self.record_file = _record_file(pipeline)
        # What is known of earlier runs: their queries, and what each source read by Spark's name.
        self.queries: dict[str, QueryRecord] = {}
        self.sources: dict[str, tuple[str, ...]] = {}
        if self.record_file.is_file():
            self._read()
        self.spark_names = self._spark_names()

    def _spark_names(self) -> dict[str, str]:
        """How Spark knows each source: by its name, or, if the file has renamed it since, by the
        name that it had. Reading the same topics is what makes it the same source."""
        declared = {source.name: topics_read(source) for source in self.pipeline.sources}
        free = {name: topics for name, topics in self.sources.items() if name not in declared}
        found = {}
        for name, topics in declared.items():
            same = [old for old, read in free.items() if read == topics]
            is_renamed = name not in self.sources and len(same) == 1
            found[name] = same[0] if is_renamed else name
        return found

    def _folders(self) -> list[str]:
        """Queries that have left something."""
        if not self.is_local:
            return list(self.queries)
        return [file.parent.name for file in Path(self.address).glob("*/metadata")]

    def has_folder(self, query: str) -> bool:
        return query in self._folders()

    def query_of_sink(self, sink: str) -> str | None:
        return next((name for name, row in self.queries.items() if sink in row.sinks), None)

    def query_of_letters(self, source: str) -> str | None:
        known = self.spark_names[source]
        return next((name for name, row in self.queries.items() if row.letters_of == known), None)

    def forget(self, query: str) -> None:
        """As if it had never run."""
        self.queries.pop(query, None)

    def forget_sink(self, sink: str) -> None:
        """As if it had never been in the query that it shares."""
        self.queries = {name: row.without_sinks([sink]) for name, row in self.queries.items()}

    def save(self, queries: Mapping[str, QueryRecord]) -> None:
        """`queries` are those that start now."""
        moved = {sink for row in queries.values() for sink in row.sinks}
        kept = {name: row.without_sinks(moved) for name, row in self.queries.items()}
        self.queries = {**kept, **queries}
        read = {self.spark_names[row.name]: topics_read(row) for row in self.pipeline.sources}
        self.sources = {**self.sources, **read}
        told = {
            "version": RECORD_VERSION,
            "sources": self.sources,
            "queries": {name: asdict(row) for name, row in self.queries.items()},
        }
        write_whole(self.record_file, json.dumps(told, indent=2) + "\n")

    def _read(self) -> None:
        try:
            told = json.loads(self.record_file.read_text(encoding="utf-8"))
            if told["version"] > RECORD_VERSION:
                raise self._unreadable("was written by a newer version of tidelog")
            self.sources = {name: tuple(topics) for name, topics in told["sources"].items()}
            self.queries = {name: _from_json(row) for name, row in told["queries"].items()}
        except (ValueError, LookupError, TypeError, AttributeError) as problem:
            raise self._unreadable(f"is damaged ({problem})") from None

    def _unreadable(self, why: str) -> PipelineError:
        told = f"{why}; without it tidelog cannot tell what the checkpoint is of. Move the folder"
        return PipelineError(
            Problem(Place(self.record_file, 0), f"{told} of the checkpoint away to begin anew")
        )

    def set_aside(self, query: str) -> Path:
        """Moves the folder of a query out of the way, so that the next start begins anew."""
        assert self.is_local, self.address
        folder = Path(self.address) / query
        number = 1
        while (aside := folder.with_name(f"{query}.old-{number}")).exists():
            number += 1
        folder.rename(aside)
        return aside


def sink_record(pipeline: Pipeline, sink: Sink) -> SinkRecord:
    return SinkRecord(sink.kind, sink.target, sink.mode, digests(pipeline)[sink.source])


def topics_read(source: Source) -> tuple[str, ...]:
    return (f"/{source.pattern}/",) if source.pattern else tuple(sorted(source.topics))


def files_of_a_stream(sink: Sink) -> Path | None:
    """The folder of a Parquet sink that a streaming query has written. Spark's log there counts
    batches, and leaves out those of a new query until their numbers are higher.
    """
    if sink.kind != PARQUET or "://" in sink.target:
        return None
    folder = Path(sink.target)
    return folder if (folder / "_spark_metadata").is_dir() else None


# What a part depends on, told from the declaration alone


def upstream_sources(pipeline: Pipeline, part: str) -> list[str]:
    """Sources that a source or view is made of, in the order of the file."""
    found: set[str] = set()
    open_parts = [part]
    views = {view.name: view for view in pipeline.views}
    while open_parts:
        name = open_parts.pop()
        if name in views:
            open_parts += inputs_of(pipeline, views[name])
        else:
            found.add(name)
    return [source.name for source in pipeline.sources if source.name in found]


def upstream_views(pipeline: Pipeline, part: str) -> set[str]:
    """Views that a view is made of, itself among them."""
    views = {view.name: view for view in pipeline.views}
    if part not in views:
        return set()
    inputs = inputs_of(pipeline, views[part])
    return {part}.union(*(upstream_views(pipeline, name) for name in inputs))


def inputs_of(pipeline: Pipeline, view: View) -> list[str]:
    """The sources and views above it that a view names."""
    if view.python_file is not None:
        return list(view.inputs)
    above = [source.name for source in pipeline.sources]
    for other in pipeline.views:
        if other.name == view.name:
            break
        above.append(other.name)
    return [name for name in above if _names(name, view.sql)]


def digests(pipeline: Pipeline) -> dict[str, str]:
    """Of every source and view."""
    found: dict[str, str] = {}
    for source in pipeline.sources:
        found[source.name] = _digest(
            source.format.kind,
            " ".join(source.format.schema.split()),
            sorted(source.format.options.items()),
            source.format.message,
            source.format.is_confluent,
            _content(source.format.schema_file),
            repr(source.watermark),
            source.tombstones,
            _expected(pipeline, source.name),
        )
    for view in pipeline.views:
        inputs = {name: found[name] for name in inputs_of(pipeline, view)}
        if view.python_file is not None:
            text = _content(view.python_file) + view.function
            parts: list[Any] = [text, list(inputs.values())]
        else:
            parts = [_nameless(view.sql, inputs)]
        found[view.name] = _digest(*parts, repr(view.watermark), _expected(pipeline, view.name))
    return found


def _expected(pipeline: Pipeline, part: str) -> list[tuple[str, str]]:
    rows = pipeline.expectations_of(part)
    return [(" ".join(row.sql.split()), row.on_fail) for row in rows]


def _nameless(sql: str, inputs: Mapping[str, str]) -> str:
    """The SQL with digests for names; how its lines are indented makes no difference."""
    text = "\n".join(line.strip() for line in sql.splitlines() if line.strip())
    for name, digest in inputs.items():
        text = re.sub(_word(name), digest, text, flags=re.IGNORECASE)
    return text


def _names(name: str, sql: str) -> bool:
    return re.search(_word(name), sql, re.IGNORECASE) is not None


def _word(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def _content(file: Path | None) -> str:
    return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


# The record as JSON


def _record_file(pipeline: Pipeline) -> Path:
    if "://" not in pipeline.checkpoint:
        return Path(pipeline.checkpoint) / RECORD_NAME
    name = hashlib.sha256(pipeline.checkpoint.encode()).hexdigest()[:16]
    return pipeline.folder / ".tidelog" / f"{name}.json"


def _from_json(row: Mapping[str, Any]) -> QueryRecord:
    return QueryRecord(
        sources=tuple(row["sources"]),
        sinks={name: SinkRecord(**sink) for name, sink in row["sinks"].items()},
        letters_of=row["letters_of"],
        keeps_state=row["keeps_state"],
        is_named=row["is_named"],
    )


def write_whole(file: Path, text: str) -> None:
    """All of it or nothing, whatever happens meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_name(f".{file.name}.{os.getpid()}")
    with written.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    written.replace(file)
