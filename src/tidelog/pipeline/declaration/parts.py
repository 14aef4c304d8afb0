"""What a pipeline is, as values that are already checked; made by `file`.

Sources come first, views see the sources and the views declared above them, sinks read any of
these. Every part remembers its line, so that errors found later can name it: a PipelineError says
what is wrong, where it stands in the file, and what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.errors import StartupError
from tidelog.spark.decoding import DEAD_LETTER
from tidelog.spark.record_format import RAW, RecordFormat

AVAILABLE_NOW: Final = "available-now"
DEFAULT_MASTER: Final = "local[*]"

TOPIC, PARQUET, CONSOLE = "topic", "parquet", "console"
SINK_KINDS: Final = (TOPIC, PARQUET, CONSOLE)

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
DELIVERIES: Final = (EXACTLY_ONCE, AT_LEAST_ONCE)


class Place(NamedTuple):
    """A line of a file; 0 when the whole file is meant."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else str(self.file)


class Problem(NamedTuple):
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class PipelineError(StartupError):
    """One problem or several; the text has one line for each."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """How to make a topic that is not there; without partitions it is not made."""

    partitions: int | None = None
    replication: int | None = None  # None leaves it to the broker
    config: Mapping[str, str] = field(default_factory=dict)


def is_compacted(config: Mapping[str, str]) -> bool:
    """A topic with this configuration."""
    return "compact" in (word.strip() for word in config.get("cleanup.policy", "").split(","))


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    line: int
    topics: tuple[str, ...]  # empty when a pattern chooses them
    pattern: str
    format: RecordFormat
    start: str
    watermark: Watermark | None
    dead_letter: str
    creation: TopicCreation
    options: Mapping[str, str]
    tombstones: str = DEAD_LETTER

    def reads(self, topic: str) -> bool:
        """The connector searches a pattern anywhere in a topic's name."""
        if self.pattern:
            return re.search(self.pattern, topic) is not None
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class View:
    """A transformation: `sql`, or the function of a Python file and the frames it is given."""

    name: str
    line: int
    sql: str
    sql_place: Place  # of the first line of the SQL
    python_file: Path | None
    function: str
    inputs: tuple[str, ...]
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class Sink:
    name: str
    line: int
    source: str  # the source or view it writes
    kind: str
    target: str  # a topic, or where the Parquet files go; empty for the console
    format: RecordFormat
    key: str  # a SQL expression; empty for none
    mode: str
    delivery: str  # into topics; empty elsewhere
    partition_by: tuple[str, ...]
    creation: TopicCreation
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is true of every row of a source or view, or else something happens to the row."""

    name: str
    line: int
    on: str
    sql: str
    on_fail: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    file: Path
    name: str
    bootstrap: str
    checkpoint: str
    trigger: str
    dead_letter: TopicCreation
    kafka: Mapping[str, str]
    spark: Mapping[str, str]
    master: str
    remote: str
    sources: tuple[Source, ...]
    views: tuple[View, ...]
    sinks: tuple[Sink, ...]
    expectations: tuple[Expectation, ...] = ()
    references: tuple[str, ...] = ()  # ${env:NAME} and ${file:PATH} in the file
    hidden_settings: tuple[str, ...] = ()  # names of Spark's settings and options with their values

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def lettered_sources(self) -> list[Source]:
        """Those whose records may be dead letters."""
        return [source for source in self.sources if self.is_lettered(source)]

    def is_lettered(self, source: Source) -> bool:
        if source.format.kind != RAW:
            return True
        return any(row.on_fail == DEAD_LETTER for row in self.expectations_of(source.name))

    def expectations_of(self, part: str) -> list[Expectation]:
        return [row for row in self.expectations if row.on == part]

    @property
    def dead_letter_topics(self) -> list[str]:
        return sorted({source.dead_letter for source in self.lettered_sources})

    def error(self, line: int, message: str) -> PipelineError:
        return PipelineError(Problem(Place(self.file, line), message))
