"""Tests of a pipeline: records in, rows out, no broker. `tidelog pipeline test` runs them.

A test is a file tests/NAME.toml beside the pipeline's own:

    [[step]]                    records that come together; the next step comes when they are done
    orders = [
      { order_id = "o1", cents = 5 },                 the value as JSON
      { _value = "cut o", _key = "k" },               or any text; `_value = ""` is empty
      { _tombstone = true, _key = "k" },              or no value
    ]
    [expect]
    revenue = [ { cents = 5 } ]                       rows that a sink writes, in any order
    "dead-letter.orders" = [ { reason = "..." } ]     why records became dead letters

Of a record `_key`, `_timestamp`, `_headers` (a table), `_value_base64` may be said too. A watermark
moves on between steps. Sinks that `expect` does not name are not looked at; rows of complete and
update mode are those of all batches.
"""

from __future__ import annotations

import base64
import datetime
import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration.parts import PipelineError, Place, Problem
from tidelog.pipeline.frames.dataframes import build_dataframes
from tidelog.pipeline.queries.checkpoint import LETTERS_PREFIX
from tidelog.pipeline.spark_errors import spark_failures, summary
from tidelog.spark.decoding import REASON
from tidelog.spark.encoding import without_headers
from tidelog.spark.record_format import CSV, JSON, RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipeline.declaration.parts import Pipeline, Source

FOLDER: Final = "tests"
RECORD_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
TIMEOUT_S: Final = 300
_RECORD_KEYS: Final = {
    "_key",
    "_value",
    "_value_base64",
    "_tombstone",
    "_timestamp",
    "_headers",
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fixture:
    file: Path
    steps: tuple[Mapping[str, Sequence[Row]], ...]  # records by source
    expected: Mapping[str, Sequence[Row]]  # rows by sink or dead letters

    @property
    def name(self) -> str:
        return self.file.stem

    def error(self, message: str) -> PipelineError:
        return PipelineError(Problem(Place(self.file, 0), message))


@dataclass(frozen=True, slots=True)
class Difference:
    output: str
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"  {self.output}"
        yield from (f"    - {row}" for row in self.missing)
        yield from (f"    + {row}" for row in self.unexpected)


def load_fixtures(pipeline: Pipeline) -> list[Fixture]:
    files = sorted((pipeline.folder / FOLDER).glob("*.toml"))
    if not files:
        told = f"has no tests; write one as {pipeline.folder / FOLDER}/NAME.toml"
        raise PipelineError(Problem(Place(pipeline.file, 0), told))
    return [_fixture(pipeline, file) for file in files]


def _fixture(pipeline: Pipeline, file: Path) -> Fixture:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(Problem(Place(file, 0), f"is no valid TOML: {error}")) from None
    fixture = Fixture(file, tuple(told.get("step", ())), told.get("expect", {}))
    if other := set(told) - {"step", "expect"}:
        raise fixture.error(f"{', '.join(sorted(other))}: there is only [[step]] and [expect]")
    if not fixture.steps or not fixture.expected:
        raise fixture.error("needs a [[step]] with records, and [expect] with rows")
    sources = {source.name for source in pipeline.sources}
    letters = {LETTERS_PREFIX + source.name for source in pipeline.lettered_sources}
    sinks = {sink.name for sink in pipeline.sinks}
    for step in fixture.steps:
        _check_names(fixture, "step", step, sources)
        for source in pipeline.sources:
            _check_columns(fixture, source, step.get(source.name, ()))
    _check_names(fixture, "expect", fixture.expected, sinks | letters)
    return fixture


def _check_names(fixture: Fixture, where: str, rows: Mapping[str, Any], known: set[str]) -> None:
    for name, value in rows.items():
        if name not in known:
            there = ", ".join(sorted(known))
            raise fixture.error(f"[{where}] {name} is not of the pipeline; there is {there}")
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise fixture.error(f"[{where}] {name}: expected a list of tables")


def _check_columns(fixture: Fixture, source: Source, records: Sequence[Row]) -> None:
    """Columns are written as JSON, which no record of another format is; of a raw one it may be."""
    format = source.format
    if format.kind == RAW or (format.kind == JSON and not format.is_confluent):
        return
    what = f"{format.kind} with framing" if format.is_confluent else format.kind
    key = "_value" if format.kind == CSV else "_value_base64"
    for row in records:
        if columns := sorted(row.keys() - _RECORD_KEYS):
            told = f"{', '.join(columns)}: columns would be written as JSON, and the source reads"
            raise fixture.error(f"[step] {source.name}: {told} {what}; give the record as {key}")


@dataclass
class FixtureRun:
    """One test on one session, in a folder of its own."""

    spark: SparkSession
    pipeline: Pipeline
    fixture: Fixture
    folder: Path
    rows: dict[str, list[str]] = field(default_factory=dict)

    def differences(self) -> list[Difference]:
        """Empty when the test passes."""
        for source in self.pipeline.sources:
            (self.folder / "in" / source.name).mkdir(parents=True)
        outputs = self._outputs()
        for number, step in enumerate(self.fixture.steps):
            for source in self.pipeline.sources:
                self._write(source, step.get(source.name, ()), number)
            self._run(outputs)
        found = (self._difference(name) for name in self.fixture.expected)
        return [row for row in found if row is not None]

    def _outputs(self) -> dict[str, tuple[DataFrame, str]]:
        """What is looked at, with its mode; rows as JSON."""
        frames = build_dataframes(self.spark, self.pipeline, streaming=True, read=self._read)
        found = {}
        for sink in self.pipeline.sinks:
            if sink.name in self.fixture.expected:
                rows = without_headers(frames.by_name[sink.source])
                found[sink.name] = rows.selectExpr("to_json(struct(*)) as row"), sink.mode
        for source in self.pipeline.lettered_sources:
            name = LETTERS_PREFIX + source.name
            if name in self.fixture.expected:
                broken = frames.rows[source.name].where(f"{REASON} is not null")
                told = f"to_json(named_struct('reason', {REASON})) as row"
                found[name] = broken.selectExpr(told), "append"
        return found

    def _read(self, source: Source) -> DataFrame:
        folder = str(self.folder / "in" / source.name)
        return self.spark.readStream.schema(RECORD_SCHEMA).parquet(folder)

    def _write(self, source: Source, records: Sequence[Row], step: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not records:
            return
        topic = source.topics[0] if source.topics else source.pattern
        rows = [
            {**self._record(row), "topic": topic, "partition": 0, "offset": 1000 * step + number}
            for number, row in enumerate(records)
        ]
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        schema = pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", tz="UTC")),
                ("timestampType", pa.int32()),
                ("headers", pa.list_(header)),
            ]
        )
        file = self.folder / "in" / source.name / f"{step:06d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)

    def _record(self, row: Row) -> dict[str, Any]:
        given = {name: value for name, value in row.items() if name in _RECORD_KEYS}
        value: bytes | None = json.dumps(
            {name: value for name, value in row.items() if name not in _RECORD_KEYS}, default=str
        ).encode()
        if given.get("_tombstone"):
            value = None
        elif "_value_base64" in given:
            value = base64.b64decode(given["_value_base64"])
        elif "_value" in given:
            value = str(given["_value"]).encode()
        headers = given.get("_headers")
        return {
            "key": str(given["_key"]).encode() if "_key" in given else None,
            "value": value,
            "timestamp": given.get("_timestamp", datetime.datetime(2000, 1, 1)),
            "timestampType": 0,
            "headers": headers
            and [{"key": name, "value": str(text).encode()} for name, text in headers.items()],
        }

    def _run(self, outputs: Mapping[str, tuple[DataFrame, str]]) -> None:
        """Every output to the end of what is there, all at once."""
        queries = {}
        for name, (rows, mode) in outputs.items():
            taken = self.rows.setdefault(name, [])

            def take(batch: DataFrame, batch_id: int, taken: list[str] = taken) -> None:
                taken.extend(row.row for row in batch.collect())

            queries[name] = (
                rows.writeStream.foreachBatch(take)
                .outputMode(mode)
                .option("checkpointLocation", str(self.folder / "checkpoint" / name))
                .trigger(availableNow=True)
                .start()
            )
        for name, query in queries.items():
            try:
                has_ended = query.awaitTermination(TIMEOUT_S)
            except spark_failures() as error:
                raise self.fixture.error(f"{name} failed: {summary(error)}") from None
            if not has_ended:
                query.stop()
                raise self.fixture.error(f"{name} did not end within {TIMEOUT_S} s")

    def _difference(self, name: str) -> Difference | None:
        expected = Counter(canonical(row) for row in self.fixture.expected[name])
        found = Counter(canonical(json.loads(row)) for row in self.rows.get(name, ()))
        missing, unexpected = expected - found, found - expected
        if not missing and not unexpected:
            return None
        return Difference(
            name, tuple(sorted(missing.elements())), tuple(sorted(unexpected.elements()))
        )


def canonical(row: Row) -> str:
    """One text for one row: to Spark a column that is null is not there."""
    return json.dumps({name: _plain(row[name]) for name in sorted(row)}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Times as Spark writes them in UTC, whichever way they are written."""
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        text = value.astimezone(datetime.UTC).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
