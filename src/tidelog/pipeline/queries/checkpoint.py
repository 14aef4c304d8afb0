"""The checkpoint of a pipeline: a folder for each query, and a record of what made them.

    <checkpoint>/<sink>                  the query of one sink
    <checkpoint>/source.<source>         the query that sinks of one source share
    <checkpoint>/source.<source>.<sink>  a sink that has left it, or `dead-letter`
    <checkpoint>/dead-letter.<source>    dead letters of a source, where no sink shares with them
    <checkpoint>/dead-letter             dead letters of all sources, by tidelog 0.1
    <checkpoint>/pipeline.json           the record, replaced as a whole when a run starts

Spark knows a query by its folder alone, and takes what it finds there for the state of whatever
query is started on it. The record says what each query read, kept and wrote, so that the next run
can tell what has changed (restart_plan). Queries that are no longer declared stay in it, as their
folders stay.

A checkpoint at an address of another file system is not looked into; its record is kept beside the
pipeline's file instead, in .tidelog.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration.lineage import digests
from tidelog.pipeline.declaration.parts import PARQUET, PipelineError, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.pipeline.declaration.parts import Pipeline, Sink, Source

_METADATA: Final = "metadata"  # Spark's file with the id of a query
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
    writer: str = ""  # the id that marks its batches, if it goes on for another query

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
        name that it had. Reading the same topics is what makes it the same source; of several that
        now read them, the first in the file. PipelineError for a source with the former name of
        another one: their offsets would be mixed up."""
        declared = {source.name: topics_read(source) for source in self.pipeline.sources}
        found = {
            name: name
            for name, topics in declared.items()
            if set(topics) & set(self.sources.get(name, ()))
        }
        for name, topics in declared.items():
            if name not in found:
                free = [
                    old
                    for old, read in self.sources.items()
                    if read == topics and old not in found.values()
                ]
                if len(free) == 1:
                    found[name] = free[0]
        former = {old: name for name, old in found.items()}
        for source in self.pipeline.sources:
            if source.name not in found and source.name in former:
                raise self.pipeline.error(
                    source.line,
                    f"[source.{source.name}] its checkpoint knows [source.{former[source.name]}] "
                    "by this name, which it had before; name this one otherwise",
                )
        return {name: found.get(name, name) for name in declared}

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

    def copy_folder(self, query: str, copy: str) -> str:
        """A folder for another query that goes on where this one has stopped; the id that this one
        has. Spark runs no two queries of one id, so the other gets a new one."""
        assert self.is_local, self.address
        folder, target = Path(self.address) / query, Path(self.address) / copy
        if target.exists():
            self.set_aside(copy)
        query_id: str = json.loads((folder / _METADATA).read_text(encoding="utf-8"))["id"]
        made = target.with_name(f".{copy}")
        shutil.rmtree(made, ignore_errors=True)
        # Spark keeps the checksum of a file beside it, and makes it anew where there is none.
        shutil.copytree(folder, made, ignore=shutil.ignore_patterns(f".{_METADATA}.crc"))
        write_whole(made / _METADATA, json.dumps({"id": str(uuid.uuid4())}))
        made.rename(target)
        return query_id

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
        writer=row.get("writer", ""),
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
