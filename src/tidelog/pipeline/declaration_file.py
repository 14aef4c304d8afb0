"""`pipeline.toml` to a Pipeline, or to all of its problems at once, each with its line and a fix.

    [pipeline]      name, bootstrap, checkpoint, trigger, dead_letter
    [kafka]         configuration of the Kafka clients, verbatim
    [spark]         master or remote; keys that begin with "spark." go to the session
    [source.NAME]   topic | topics | pattern; format, schema, watermark, start, ...
    [view.NAME]     sql | sql_file | python with inputs; watermark
    [sink.NAME]     from; topic | parquet | console; format, key, mode, ...

Needs no Spark: whether SQL and columns are right is seen when DataFrames are built.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from tidelog.pipeline.declaration import (
    AVAILABLE_NOW,
    AVRO,
    CONSOLE,
    DEFAULT_MASTER,
    DELIVERIES,
    EXACTLY_ONCE,
    FORMATS,
    JSON,
    PARQUET,
    PROTOBUF,
    RAW,
    SINK_KINDS,
    TOPIC,
    Format,
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Sink,
    Source,
    View,
    Watermark,
)
from tidelog.pipeline.toml_table import TomlLines, TomlTable, syntax_error_line

FILE_NAME: Final = "pipeline.toml"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(r"\d+ *(ms|milliseconds?|s|seconds?|min|minutes?|h|hours?|days?)")
_PYTHON = re.compile(r"([^:]+\.py):([A-Za-z_]\w*)")
_TABLES: Final = ("pipeline", "kafka", "spark", "source", "view", "sink")
_SCHEMA_EXAMPLE: Final = 'schema = "order_id string not null, amount double, at timestamp"'


def load_pipeline(folder: Path, overrides: dict[str, str] | None = None) -> Pipeline:
    """`overrides` are keys of [pipeline], and `master` and `remote`, that come before the file."""
    file = folder if folder.is_file() else folder / FILE_NAME
    if not file.is_file():
        raise PipelineError(
            Problem(Place(file, 0), f"is not there; tidelog pipeline init {folder} writes one")
        )
    return parse_pipeline(file, file.read_text(encoding="utf-8"), overrides or {})


def parse_pipeline(file: Path, text: str, overrides: dict[str, str]) -> Pipeline:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = Place(file, syntax_error_line(str(error)))
        raise PipelineError(Problem(place, f"is no valid TOML: {error}")) from None
    declared = _Declaration(file, tables, TomlLines(text), overrides).pipeline()
    if isinstance(declared, Pipeline):
        return declared
    raise PipelineError(*sorted(declared, key=lambda problem: problem.place.line))


class _Declaration:
    """One reading of one file; problems gather until the end."""

    def __init__(
        self, file: Path, tables: dict[str, Any], lines: TomlLines, overrides: dict[str, str]
    ) -> None:
        self.file = file
        self.tables = tables
        self.lines = lines
        self.overrides = overrides
        self.problems: list[Problem] = []

    def pipeline(self) -> Pipeline | list[Problem]:
        root = self._reader((), self.tables)
        root.refuse_other(_TABLES)
        settings = self._reader(("pipeline",), root.table("pipeline"))
        name = settings.must_text("name", 'give the pipeline a name, for example name = "shop"')
        dead_letter = settings.text("dead_letter", f"{name}.dead-letter")
        self._check_topics(settings, "dead_letter", [dead_letter])
        spark = self._reader(("spark",), root.table("spark"))
        sources = tuple(self._source(*row, dead_letter) for row in self._named("source"))
        views = tuple(self._view(*row) for row in self._named("view"))
        sinks = tuple(self._sink(*row) for row in self._named("sink"))
        made = Pipeline(
            file=self.file,
            name=name,
            bootstrap=self._given(settings, "bootstrap", "127.0.0.1:9092"),
            checkpoint=self._located(self._given(settings, "checkpoint", "checkpoint")),
            trigger=self._trigger(settings),
            kafka=self._reader(("kafka",), root.table("kafka")).texts(),
            master=self._given(spark, "master", DEFAULT_MASTER),
            remote=self._given(spark, "remote", ""),
            spark=self._spark_keys(spark),
            sources=sources,
            views=views,
            sinks=sinks,
        )
        settings.refuse_unread()
        self._check_whole(made)
        return self.problems or made

    # Parts

    def _source(self, name: str, reader: TomlTable, dead_letter: str) -> Source:
        kind = reader.one_of("topic", "topics", "pattern")
        topics = [reader.text("topic")] if kind == "topic" else reader.text_list("topics")
        self._check_topics(reader, kind or "topic", topics)
        source = Source(
            name=name,
            line=reader.line(),
            topics=tuple(topics),
            pattern=reader.text("pattern"),
            format=self._format(reader, is_source=True),
            start=reader.text("start", "earliest"),
            watermark=self._watermark(reader),
            dead_letter=reader.text("dead_letter", dead_letter),
            partitions=reader.integer("partitions", at_least=1),
            options=self._reader((*reader.path, "options"), reader.table("options")).texts(),
        )
        reader.refuse_unread()
        return source

    def _view(self, name: str, reader: TomlTable) -> View:
        kind = reader.one_of("sql", "sql_file", "python")
        sql, place = reader.text("sql"), Place(self.file, reader.line("sql"))
        if kind == "sql":
            place = Place(self.file, self.lines.first_text_line(sql, *reader.path, "sql"))
        elif kind == "sql_file":
            path = self._existing(reader, "sql_file")
            sql, place = ("" if path is None else path.read_text()), Place(path or self.file, 1)
        python_file, function = None, ""
        if kind == "python":
            python_file, function = self._python(reader)
        view = View(
            name=name,
            line=reader.line(),
            sql=sql,
            sql_place=place,
            python_file=python_file,
            function=function,
            inputs=tuple(reader.text_list("inputs")) if kind == "python" else (),
            watermark=self._watermark(reader),
        )
        reader.refuse_unread()
        return view

    def _sink(self, name: str, reader: TomlTable) -> Sink:
        source = reader.must_text("from", 'say what it writes: from = "name of a source or view"')
        kind = reader.one_of(*SINK_KINDS) or CONSOLE
        target = ""
        if kind == TOPIC:
            target = reader.text("topic")
            self._check_topics(reader, "topic", [target])
        elif kind == PARQUET:
            target = self._located(reader.must_text("parquet", "name a folder"))
        elif not reader.flag("console", True):
            reader.problem("console", "only true has a meaning; leave the sink out instead")
        sink = Sink(
            name=name,
            line=reader.line(),
            source=source,
            kind=kind,
            target=target,
            format=self._format(reader, is_source=False) if kind == TOPIC else Format(RAW),
            key=reader.text("key") if kind == TOPIC else "",
            mode=reader.choice("mode", _modes(kind), "append"),
            delivery=reader.choice("delivery", DELIVERIES, EXACTLY_ONCE) if kind == TOPIC else "",
            partition_by=tuple(reader.text_list("partition_by")) if kind == PARQUET else (),
            partitions=reader.integer("partitions", at_least=1) if kind == TOPIC else None,
            options=self._reader((*reader.path, "options"), reader.table("options")).texts(),
        )
        reader.refuse_unread()
        return sink

    # Values

    def _format(self, reader: TomlTable, *, is_source: bool) -> Format:
        kind = reader.choice("format", FORMATS, JSON)
        schema = reader.text("schema") if is_source and kind != RAW else ""
        if is_source and kind != RAW and not schema:
            fix = f"format {kind} needs to know the columns, for example {_SCHEMA_EXAMPLE}"
            reader.problem("schema", fix)
        schema_file, message = None, ""
        if kind == AVRO:
            reader.must_text("avro_schema", 'name the schema: avro_schema = "order.avsc"')
            schema_file = self._existing(reader, "avro_schema")
        elif kind == PROTOBUF:
            fix = 'name the output of protoc --descriptor_set_out: descriptors = "shop.desc"'
            reader.must_text("descriptors", fix)
            schema_file = self._existing(reader, "descriptors")
            message = reader.must_text("message", 'name the message: message = "shop.Order"')
        is_confluent = False
        if kind in (AVRO, PROTOBUF):
            is_confluent = reader.choice("framing", ("none", "confluent"), "none") == "confluent"
        options = self._reader((*reader.path, "format_options"), reader.table("format_options"))
        return Format(kind, schema, options.texts(), schema_file, message, is_confluent)

    def _watermark(self, reader: TomlTable) -> Watermark | None:
        if "watermark" not in reader.given:
            return None
        inner = self._reader((*reader.path, "watermark"), reader.table("watermark"))
        example = 'watermark = { column = "ordered_at", delay = "10 minutes" }'
        column = inner.must_text("column", example)
        delay = inner.must_text("delay", example)
        self._check_duration(inner, "delay", delay)
        inner.refuse_unread()
        return Watermark(column, delay)

    def _trigger(self, settings: TomlTable) -> str:
        trigger = self._given(settings, "trigger", "1 second")
        if trigger != AVAILABLE_NOW:
            self._check_duration(settings, "trigger", trigger, f', or "{AVAILABLE_NOW}"')
        return trigger

    def _check_duration(self, reader: TomlTable, key: str, text: str, also: str = "") -> None:
        if text and not _DURATION.fullmatch(text):
            reader.problem(key, f'"{text}" is no duration; write "10 seconds" or "5 minutes"{also}')

    def _spark_keys(self, spark: TomlTable) -> dict[str, str]:
        keys = {name: text for name, text in spark.texts().items() if name.startswith("spark.")}
        spark.refuse_other(("master", "remote", *keys))
        return keys

    def _python(self, reader: TomlTable) -> tuple[Path | None, str]:
        text = reader.text("python")
        found = _PYTHON.fullmatch(text)
        if found is None:
            reader.problem("python", f'"{text}" is not of the form "file.py:function"')
            return None, ""
        return self._existing(reader, "python", found[1]), found[2]

    def _existing(self, reader: TomlTable, key: str, name: str | None = None) -> Path | None:
        name = reader.text(key) if name is None else name
        path = self.file.parent / name
        if name and not path.is_file():
            reader.problem(key, f"{path} is not there; paths begin at the folder of the pipeline")
            return None
        return path if name else None

    def _located(self, path: str) -> str:
        """Paths begin at the folder of the file; an address of another file system stays."""
        return path if "://" in path or not path else str(self.file.parent.absolute() / path)

    def _given(self, reader: TomlTable, key: str, default: str) -> str:
        text = reader.text(key, default)
        return self.overrides.get(key, text)

    def _check_topics(self, reader: TomlTable, key: str, topics: list[str]) -> None:
        for topic in topics:
            if topic and not _TOPIC_NAME.fullmatch(topic):
                reader.problem(
                    key, f'"{topic}" is no topic name: only letters, digits, ".", "_" and "-"'
                )

    def _named(self, kind: str) -> list[tuple[str, TomlTable]]:
        tables = self._reader((), self.tables).table(kind)
        rows = []
        for name, table in tables.items():
            reader = self._reader((kind, name), table if isinstance(table, dict) else {})
            if not isinstance(table, dict):
                fix = f"write [{kind}.NAME] above it; [{kind}] holds only named tables"
                reader.problem(None, fix)
            elif not _NAME.fullmatch(name):
                reader.problem(None, f'"{name}" is no name for SQL: only letters, digits and "_"')
            rows.append((name, reader))
        return rows

    def _reader(self, path: tuple[str, ...], table: dict[str, Any]) -> TomlTable:
        return TomlTable(self.file, path, table, self.lines, self.problems)

    # The whole

    def _check_whole(self, made: Pipeline) -> None:
        if not made.sources:
            self._problem((), "reads nothing; add a [source.NAME] with a topic")
        if not made.sinks:
            self._problem((), "writes nothing; add a [sink.NAME] with from and topic")
        known = [source.name for source in made.sources]
        for view in made.views:
            self._check_known(("view", view.name, "inputs"), view.inputs, known)
            if view.name in known:
                self._problem(("view", view.name), "there is a source of that name; rename it")
            known.append(view.name)
        read = {topic for source in made.sources for topic in source.topics}
        for sink in made.sinks:
            self._check_known(("sink", sink.name, "from"), [sink.source], known)
            if sink.kind == TOPIC and sink.target in read:
                path = ("sink", sink.name, "topic")
                self._problem(path, f'"{sink.target}" is also read: it would never end')
        for topic in made.dead_letter_topics:
            if topic in read:
                self._problem(
                    ("pipeline", "dead_letter"),
                    f'"{topic}" is also read: broken rows would go round for ever',
                )

    def _check_known(self, path: tuple[str, ...], names: Any, known: list[str]) -> None:
        for name in names:
            if name and name not in known:
                there = ", ".join(known) or "nothing"
                self._problem(path, f'"{name}" is no source or view above it; there is {there}')

    def _problem(self, path: tuple[str, ...], message: str) -> None:
        """Of a key of a table, or of the whole file."""
        if path:
            self._reader(path[:-1], {}).problem(path[-1], message)
        else:
            self.problems.append(Problem(Place(self.file, 0), message))


def _modes(kind: str) -> tuple[str, ...]:
    """Spark's file sink appends; its Python sinks cannot be told which rows are updates."""
    modes = {TOPIC: ("append", "complete"), PARQUET: ("append",)}
    return modes.get(kind, ("append", "complete", "update"))
