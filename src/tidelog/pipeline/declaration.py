"""What a pipeline is, as values that are already checked; made by declaration_file.

Sources come first, views see the sources and the views declared above them, sinks read any of
these. Every part remembers its line, so that errors found later can name it: a PipelineError says
what is wrong, where it stands in the file, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.errors import StartupError

AVAILABLE_NOW: Final = "available-now"
DEFAULT_MASTER: Final = "local[*]"

JSON, CSV, RAW, AVRO, PROTOBUF = "json", "csv", "raw", "avro", "protobuf"
FORMATS: Final = (JSON, CSV, RAW, AVRO, PROTOBUF)
# The formats whose rows are JSON text once a Python worker has decoded them.
DECODED_FORMATS: Final = (AVRO, PROTOBUF)

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
class Format:
    kind: str
    schema: str = ""  # columns as DDL; empty for raw and in sinks
    options: Mapping[str, str] = field(default_factory=dict)  # Spark's, for JSON and CSV
    schema_file: Path | None = None  # an Avro schema, or a set of Protobuf descriptors
    message: str = ""  # the Protobuf message's full name
    is_confluent: bool = False  # five bytes of schema registry framing come before the record


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    line: int
    topics: tuple[str, ...]  # empty when a pattern chooses them
    pattern: str
    format: Format
    start: str
    watermark: Watermark | None
    dead_letter: str
    partitions: int | None  # of a topic that has to be made
    options: Mapping[str, str]


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
    format: Format
    key: str  # a SQL expression; empty for none
    mode: str
    delivery: str  # into topics; empty elsewhere
    partition_by: tuple[str, ...]
    partitions: int | None
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pipeline:
    file: Path
    name: str
    bootstrap: str
    checkpoint: str
    trigger: str
    kafka: Mapping[str, str]
    spark: Mapping[str, str]
    master: str
    remote: str
    sources: tuple[Source, ...]
    views: tuple[View, ...]
    sinks: tuple[Sink, ...]

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def dead_letter_topics(self) -> list[str]:
        parsed = (source for source in self.sources if source.format.kind != RAW)
        return sorted({source.dead_letter for source in parsed})

    def error(self, line: int, message: str) -> PipelineError:
        return PipelineError(Problem(Place(self.file, line), message))
