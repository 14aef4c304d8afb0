"""`pipeline.toml` to a Pipeline, or to all of its problems at once, each with its line and a fix.

    [pipeline]      name, bootstrap, checkpoint, trigger, dead_letter, ...
    [kafka]         configuration of the Kafka clients, verbatim
    [spark]         master or remote; keys that begin with "spark." go to the session
    [registry]      a schema registry, by Confluent's keys
    [source.NAME]   topic | topics | pattern; format, schema, watermark, start, ...
    [view.NAME]     sql | sql_file | python with inputs; watermark
    [expect.NAME]   on, sql, on_fail
    [sink.NAME]     from; topic | parquet | console; format, key, mode, ...

Needs no Spark: whether SQL and columns are right is seen when DataFrames are built.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tidelog.pipeline.declaration.parts import (
    AVAILABLE_NOW,
    CONSOLE,
    DEFAULT_MASTER,
    DELIVERIES,
    EXACTLY_ONCE,
    PARQUET,
    SINK_KINDS,
    TOPIC,
    Expectation,
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Sink,
    Source,
    TopicCreation,
    View,
    Watermark,
    is_compacted,
)
from tidelog.pipeline.declaration.references import DeclaredReferences
from tidelog.pipeline.declaration.toml_table import TomlLines, TomlTable, syntax_error_line
from tidelog.spark.codecs.errors import RegistryError
from tidelog.spark.codecs.schema_registry import (
    FILE_KEYS,
    RegistrySettings,
    SchemaFolder,
    SchemaSource,
    registry_settings,
)
from tidelog.spark.decoding import DEAD_LETTER, DROP, KEEP
from tidelog.spark.expectations import ON_FAIL
from tidelog.spark.options import PROGRESS_TOPIC
from tidelog.spark.record_format import AVRO, CSV, FORMATS, JSON, PROTOBUF, RAW, RecordFormat
from tidelog.spark.references import without_values

FILE_NAME: Final = "pipeline.toml"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
# What Spark takes for an interval; it knows no abbreviations, and wants the space.
_DURATION = re.compile(r"(\d{1,9} +(millisecond|second|minute|hour|day|week)s?( +|$))+")
_PYTHON = re.compile(r"([^:]+\.py):([A-Za-z_]\w*)")
_TABLES: Final = ("pipeline", "kafka", "spark", "registry", "source", "view", "expect", "sink")
# Options that a source or a sink says by keys of its own.
_DECLARED_BY_SOURCE: Final = {
    "subscribe": "topic or topics",
    "subscribePattern": "pattern",
    "assign": "topic or topics",
    "startingOffsets": "start",
    "kafka.bootstrap.servers": "bootstrap in [pipeline]",
    "includeHeaders": "none; the headers are the column _headers",
    "path": "none; a pipeline reads topics",
    "endingTimestamp": "none; a pipeline reads on",
    "endingOffsetsByTimestamp": "none; a pipeline reads on",
    "endingOffsets": "none; a pipeline reads on",
}
# Options of a source that count before `start`.
_BEFORE_START: Final = ("startingtimestamp", "startingoffsetsbytimestamp")
_DECLARED_BY_ANY_SINK: Final = {
    "checkpointLocation": "checkpoint in [pipeline]",
    "outputMode": "mode",
    "queryName": "none; a query has the names of the pipeline and of its sinks",
}
_DECLARED_BY_TOPIC: Final = {
    **_DECLARED_BY_ANY_SINK,
    "topic": "topic",
    "path": "topic",
    "includeHeaders": "none; the column headers is written if there is one",
    "kafka.bootstrap.servers": "bootstrap in [pipeline]",
    "deliveryGuarantee": "delivery",
    "txnAppId": "none; the query and the sink are the writer",
    "txnVersion": "none; the batch has a number",
}
_DECLARED_BY_SINK: Final = {
    TOPIC: _DECLARED_BY_TOPIC,
    PARQUET: {**_DECLARED_BY_ANY_SINK, "path": "parquet"},
    CONSOLE: {**_DECLARED_BY_ANY_SINK, "path": "none; a console has no files"},
}
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
    lines = TomlLines(text)
    references = DeclaredReferences(file, tables, lines)
    if references.problems:
        raise PipelineError(*references.problems)
    declared = _Declaration(file, references.tables, lines, overrides).pipeline()
    if isinstance(declared, Pipeline):
        if declared.remote and references.hidden_settings:
            names = ", ".join(references.hidden_settings)
            told = f"Spark Connect cannot keep {names} out of the server's logs; set it there"
            raise PipelineError(Problem(Place(file, lines.line("spark", "remote")), told))
        return replace(
            declared,
            references=tuple(dict.fromkeys(references.found)),
            hidden_settings=tuple(dict.fromkeys(references.hidden_settings)),
        )
    raise PipelineError(
        *(
            Problem(problem.place, without_values(problem.message, references.found))
            for problem in sorted(declared, key=lambda problem: problem.place.line)
        )
    )


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
        self.registry: RegistrySettings | None = None  # of all that have none of their own
        self.is_registry_used = False

    def pipeline(self) -> Pipeline | list[Problem]:
        root = self._reader((), self.tables)
        root.refuse_other(_TABLES)
        settings = self._reader(("pipeline",), root.table("pipeline"))
        name = settings.must_text("name", 'give the pipeline a name, for example name = "shop"')
        dead_letter = settings.text("dead_letter", f"{name}.dead-letter")
        self._check_topics(settings, "dead_letter", [dead_letter])
        spark = self._reader(("spark",), root.table("spark"))
        if "registry" in root.given:
            self.registry = self._registry_keys(("registry",), root.table("registry"))
        sources = tuple(self._source(*row, dead_letter) for row in self._named("source"))
        views = tuple(self._view(*row) for row in self._named("view"))
        sinks = tuple(self._sink(*row) for row in self._named("sink"))
        expectations = tuple(self._expectation(*row) for row in self._named("expect"))
        made = Pipeline(
            file=self.file,
            name=name,
            bootstrap=self._given(settings, "bootstrap", "127.0.0.1:9092"),
            checkpoint=self._located(self._given(settings, "checkpoint", "checkpoint")),
            trigger=self._trigger(settings),
            dead_letter=self._creation(settings, "dead_letter_"),
            kafka=self._kafka_keys(self._reader(("kafka",), root.table("kafka"))),
            master=self._given(spark, "master", DEFAULT_MASTER),
            remote=self._remote(spark),
            spark=self._spark_keys(spark),
            sources=sources,
            views=views,
            sinks=sinks,
            expectations=expectations,
        )
        settings.refuse_unread()
        self._check_whole(made)
        return self.problems or made

    # Parts

    def _source(self, name: str, reader: TomlTable, dead_letter: str) -> Source:
        kind = reader.one_of("topic", "topics", "pattern")
        topics = [reader.text("topic")] if kind == "topic" else reader.text_list("topics")
        self._check_topics(reader, kind or "topic", topics)
        letters = reader.text("dead_letter", dead_letter)
        self._check_topics(reader, "dead_letter", [letters])
        format, options = self._format(reader), self._options(reader, _DECLARED_BY_SOURCE)
        creation = self._creation(reader)
        if kind == "pattern" and creation.partitions is not None:
            reader.problem("partitions", "a pattern names no topic to be made; leave it out")
        later = [name for name in options if name.lower() in _BEFORE_START]
        if later and "start" in reader.given:
            reader.problem("start", f"stands beside {later[0]} in options; keep one of them")
        source = Source(
            name=name,
            line=reader.line(),
            topics=tuple(topics),
            pattern=self._pattern(reader),
            format=format,
            start=reader.text("start", "earliest"),
            watermark=self._watermark(reader),
            dead_letter=letters,
            creation=creation,
            options=options,
            tombstones=self._tombstones(reader, format.kind),
        )
        reader.refuse_unread()
        return source

    def _tombstones(self, reader: TomlTable, kind: str) -> str:
        """A raw record without a value is a row like any other: it is kept, or dropped."""
        if kind == RAW and reader.given.get("tombstones") == DEAD_LETTER:
            fix = f'use "{KEEP}" or "{DROP}", or an expectation with sql = "value is not null"'
            reader.problem("tombstones", f"no raw record is broken; {fix}")
        return reader.choice("tombstones", (DEAD_LETTER, KEEP, DROP), DEAD_LETTER)

    def _pattern(self, reader: TomlTable) -> str:
        pattern = reader.text("pattern")
        try:
            re.compile(pattern)
        except re.error as error:
            reader.problem("pattern", f'"{pattern}" is no regular expression: {error}')
            return ""
        return pattern

    def _options(self, reader: TomlTable, declared: Mapping[str, str]) -> dict[str, str]:
        """Of the connector or of Spark's writer. What has a key of its own may not come in by this
        door too: a folder, say, would be another one than the restart plan knows."""
        options = self._reader((*reader.path, "options"), reader.table("options"))
        for option, key in declared.items():
            if option.lower() in (name.lower() for name in options.given):
                options.problem(option, f"is said by another key here: {key}")
        return options.texts()

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

    def _expectation(self, name: str, reader: TomlTable) -> Expectation:
        expectation = Expectation(
            name=name,
            line=reader.line(),
            on=reader.must_text("on", 'say of what: on = "name of a source or view"'),
            sql=reader.must_text("sql", 'say what holds for every row: sql = "amount > 0"'),
            on_fail=reader.choice("on_fail", ON_FAIL, DROP),
        )
        reader.refuse_unread()
        return expectation

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
            format=self._format(reader, topic=target) if kind == TOPIC else RecordFormat(RAW),
            key=reader.text("key") if kind == TOPIC else "",
            mode=reader.choice("mode", _modes(kind), "append"),
            delivery=reader.choice("delivery", DELIVERIES, EXACTLY_ONCE) if kind == TOPIC else "",
            partition_by=tuple(reader.text_list("partition_by")) if kind == PARQUET else (),
            creation=self._creation(reader) if kind == TOPIC else TopicCreation(),
            options=self._options(reader, _DECLARED_BY_SINK[kind]),
        )
        reader.refuse_unread()
        return sink

    # Values

    def _format(self, reader: TomlTable, topic: str | None = None) -> RecordFormat:
        """Of a source, or of the sink that writes `topic`."""
        kind, is_source = reader.choice("format", FORMATS, JSON), topic is None
        schema = reader.text("schema") if is_source and kind != RAW else ""
        if is_source and kind != RAW and not schema:
            fix = f"format {kind} needs to know the columns, for example {_SCHEMA_EXAMPLE}"
            reader.problem("schema", fix)
        is_confluent = False
        if kind in (AVRO, PROTOBUF, JSON):
            is_confluent = reader.choice("framing", ("none", "confluent"), "none") == "confluent"
        schemas = self._schemas(reader, kind, is_source=is_source) if is_confluent else None
        schema_file, message = None, ""
        if kind == AVRO:
            if not is_confluent:
                reader.must_text("avro_schema", 'name the schema: avro_schema = "order.avsc"')
            schema_file = self._existing(reader, "avro_schema")
        elif kind == PROTOBUF:
            fix = 'name the output of protoc --descriptor_set_out: descriptors = "shop.desc"'
            reader.must_text("descriptors", fix)
            schema_file = self._existing(reader, "descriptors")
            message = reader.must_text("message", 'name the message: message = "shop.Order"')
        elif kind == JSON and is_confluent and not is_source:
            schema_file = self._existing(reader, "json_schema")
        if isinstance(schemas, RegistrySettings) and schemas.uses_latest and not is_source:
            for key in ("avro_schema", "json_schema"):
                if key in reader.given:
                    reader.problem(key, "use.latest.version takes the registry's; keep one of them")
        options = self._reader((*reader.path, "format_options"), reader.table("format_options"))
        if options.given and kind not in (JSON, CSV):
            fix = f"Spark's options are for {JSON} and {CSV}; leave them out"
            reader.problem("format_options", f"has no effect with format {kind}: {fix}")
        subject = "" if is_source else f"{topic}-value"
        return RecordFormat(
            kind, schema, options.texts(), schema_file, message, is_confluent, schemas, subject
        )

    def _schemas(self, reader: TomlTable, kind: str, *, is_source: bool) -> SchemaSource | None:
        """Where the ids of schemas are looked up."""
        if is_source and kind == JSON:
            return None  # JSON says itself what it is
        folder, own = reader.text("schemas"), self._own_registry(reader)
        if folder and own is not None:
            reader.problem("registry", "stands beside schemas; keep one of them")
        if folder and kind == PROTOBUF and not is_source:
            reader.problem("schemas", "a sink of Protobuf needs a registry, which takes its schema")
        if folder:
            return self._folder(reader, self.file.parent / folder)
        if own is not None or "registry" in reader.given:
            return own
        if "registry" not in self.tables and (kind == AVRO or not is_source):
            fix = 'add registry = "http://localhost:8081", or schemas = "folder" of files by id'
            reader.problem("framing", f"confluent needs the schemas of its ids; {fix}")
        self.is_registry_used = True
        return self.registry

    def _own_registry(self, reader: TomlTable) -> RegistrySettings | None:
        """An address, or a table of Confluent's keys."""
        if isinstance(reader.given.get("registry"), str):
            given = {"schema.registry.url": reader.text("registry")}
            return self._registry_settings(reader, "registry", given)
        table = reader.table("registry")
        return self._registry_keys((*reader.path, "registry"), table) if table else None

    def _folder(self, reader: TomlTable, folder: Path) -> SchemaFolder | None:
        try:
            made = SchemaFolder(folder)
        except (OSError, UnicodeDecodeError, RegistryError) as problem:
            reader.problem("schemas", f"{folder} cannot be read: {problem}")
            return None
        if not len(made):
            reader.problem("schemas", f"{folder} has no files like 7.avsc, 7.proto or 7.json")
        return made

    def _registry_keys(
        self, path: tuple[str, ...], table: dict[str, Any]
    ) -> RegistrySettings | None:
        reader, known = self._reader(path, table), len(self.problems)
        given = reader.texts()
        return self._registry_settings(reader, None, given) if len(self.problems) == known else None

    def _registry_settings(
        self, reader: TomlTable, key: str | None, given: dict[str, str]
    ) -> RegistrySettings | None:
        located = {
            name: self._located(text) if name in FILE_KEYS else text for name, text in given.items()
        }
        try:
            return registry_settings(located)
        except ValueError as problem:
            wrong, _, told = str(problem).partition(": ")
            reader.problem(key or wrong, told)
            return None

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

    def _creation(self, reader: TomlTable, prefix: str = "") -> TopicCreation:
        """Without `partitions` a topic is not made, so the other keys would have no meaning; dead
        letters (with a prefix) are made in any case."""
        partitions = reader.integer(f"{prefix}partitions", at_least=1)
        replication = reader.integer(f"{prefix}replication", at_least=1)
        key = f"{prefix}config" if prefix else "topic_config"
        config = self._reader((*reader.path, key), reader.table(key)).texts()
        if partitions is None and not prefix:
            for name, given in (("replication", replication), (key, config)):
                if given:
                    reader.problem(name, "is for a topic that is made; add partitions = 1")
        return TopicCreation(partitions, replication, config)

    def _trigger(self, settings: TomlTable) -> str:
        trigger = self._given(settings, "trigger", "1 second")
        if trigger != AVAILABLE_NOW:
            self._check_duration(settings, "trigger", trigger, f', or "{AVAILABLE_NOW}"')
        return trigger

    def _check_duration(self, reader: TomlTable, key: str, text: str, also: str = "") -> None:
        if text and not _DURATION.fullmatch(text):
            fix = f'write "10 seconds" or "5 minutes"{also}'
            reader.problem(key, f'"{text}" is no duration for Spark; {fix}')

    def _remote(self, spark: TomlTable) -> str:
        """The command's `master` comes before the file's `remote` too."""
        places = ("master", "remote")
        remote = spark.text("remote")
        told = [name for name in places if name in self.overrides]
        if len(told) == 2:
            spark.problem(None, "the command names both master and remote; keep one of them")
        elif not told and all(name in spark.given for name in places):
            spark.problem("remote", "stands beside master; keep one of them")
        return self.overrides.get("remote", "" if told else remote)

    def _spark_keys(self, spark: TomlTable) -> dict[str, str]:
        keys = {name: text for name, text in spark.texts().items() if name.startswith("spark.")}
        spark.refuse_other(("master", "remote", *keys))
        return keys

    def _kafka_keys(self, kafka: TomlTable) -> dict[str, str]:
        for name in kafka.given:
            if name.lower() == "bootstrap.servers":
                kafka.problem(name, "is said by another key here: bootstrap in [pipeline]")
            elif name.lower().startswith("kafka."):
                kafka.problem(
                    name, f'is written without its prefix here: "{name[len("kafka.") :]}"'
                )
        return kafka.texts()

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
            known.append(view.name)
        for sink in made.sinks:
            self._check_known(("sink", sink.name, "from"), [sink.source], known)
        for row in made.expectations:
            self._check_known(("expect", row.name, "on"), [row.on], known)
            if row.on_fail == DEAD_LETTER and row.on in {view.name for view in made.views}:
                fix = "the rows of a view are no records; put it on the source, or drop or fail"
                self._problem(("expect", row.name, "on_fail"), fix)
        self._check_names(made)
        self._check_shared_targets(made)
        self._check_loops(made)
        self._check_letters(made)
        if "registry" in self.tables and not self.is_registry_used:
            fix = 'add framing = "confluent" to a source or sink, or leave it out'
            self._problem(("registry",), f"no source and no sink uses it; {fix}")

    def _check_letters(self, made: Pipeline) -> None:
        """What names or makes topics of dead letters needs records that may become some."""
        if is_compacted(made.dead_letter.config):
            told = "letters of one key would replace each other; leave cleanup.policy out"
            self._problem(("pipeline", "dead_letter_config"), told)
        for source in made.sources:
            if self._has_own_letters(source) and not made.is_lettered(source):
                fix = 'add an expectation with on_fail = "dead-letter", or leave it out'
                path = "source", source.name, "dead_letter"
                self._problem(path, f"no raw record is broken, so there are no letters; {fix}")
        lettered = made.lettered_sources
        keys = [] if lettered else ["partitions", "replication", "config"]
        names = [f"dead_letter_{key}" for key in keys]
        if all(self._has_own_letters(source) for source in lettered):
            names.append("dead_letter")
        given = self.tables.get("pipeline")
        for name in names:
            if isinstance(given, dict) and name in given:
                told = "no source has dead letters for it; leave it out"
                self._problem(("pipeline", name), told)

    def _check_names(self, made: Pipeline) -> None:
        """Spark's tables have names in any case."""
        taken: dict[str, str] = {}
        rows = [("source", row.name) for row in made.sources]
        rows += [("view", row.name) for row in made.views]
        for kind, name in rows:
            if other := taken.get(name.lower()):
                told = f"there is a {other} of that name; rename it"
                self._problem((kind, name), told)
            taken.setdefault(name.lower(), kind)

    def _check_shared_targets(self, made: Pipeline) -> None:
        """Sinks may write one topic, which is made in one way; Spark's log of the files in a folder
        is of one query, so it would leave out the rows of another."""
        folders: dict[str, str] = {}
        topics: dict[str, Sink] = {}
        for sink in made.sinks:
            if sink.kind == PARQUET:
                folder = sink.target if "://" in sink.target else os.path.normpath(sink.target)
                if other := folders.setdefault(folder.rstrip("/"), sink.name):
                    self._check_folder(sink, other)
            elif sink.kind == TOPIC and sink.creation != TopicCreation():
                first = topics.setdefault(sink.target, sink)
                if first.creation != sink.creation:
                    told = f"[sink.{first.name}] makes this topic in another way; say it once"
                    self._problem(("sink", sink.name, "partitions"), told)
                if not is_compacted(sink.creation.config):
                    continue
                if not sink.key and sink.format.kind != RAW:
                    fix = 'add a key, for example key = "id"'
                    told = f"records of a compacted topic need keys; {fix}"
                    self._problem(("sink", sink.name, "topic_config"), told)
                if sink.target in made.dead_letter_topics:
                    told = "dead letters go to this topic, and letters of one key would replace "
                    fix = "each other; name another topic, or leave cleanup.policy out"
                    self._problem(("sink", sink.name, "topic_config"), told + fix)

    def _check_folder(self, sink: Sink, other: str) -> None:
        if other != sink.name:
            told = f"[sink.{other}] writes this folder; name another, or write both by one view"
            self._problem(("sink", sink.name, PARQUET), told)

    def _check_loops(self, made: Pipeline) -> None:
        """A source that reads what its own pipeline writes would never end."""
        written: list[tuple[tuple[str, ...], str]] = [
            (("sink", sink.name, "topic"), sink.target) for sink in made.sinks if sink.kind == TOPIC
        ]
        written += [
            (self._dead_letter_key(source), source.dead_letter)
            for source in made.sources
            if source.dead_letter in made.dead_letter_topics
        ]
        self._check_progress_topics(made)
        for path, topic in dict.fromkeys(written):
            for reader in made.sources:
                if topic and reader.reads(topic):
                    by = f'pattern "{reader.pattern}"' if reader.pattern else "its topic"
                    self._problem(
                        path,
                        f'"{topic}" is also read by [source.{reader.name}], by {by}: it would '
                        f"never end. A pipeline may not read its own output or dead letters; "
                        f"name another topic, or choose a narrower pattern",
                    )

    def _check_progress_topics(self, made: Pipeline) -> None:
        """Where sinks mark the batches that they have written exactly once."""
        options = [sink.options for sink in made.sinks if sink.delivery == EXACTLY_ONCE]
        options += [{}] if made.lettered_sources else []
        given = [{name.lower(): text for name, text in row.items()} for row in options]
        for topic in sorted({row.get("progresstopic", PROGRESS_TOPIC).strip() for row in given}):
            for reader in made.sources:
                if reader.reads(topic):
                    key = "pattern" if reader.pattern else "topics"
                    told = f'also reads "{topic}", to which each exactly-once batch adds a record'
                    fix = "it would never end; choose a narrower pattern, or another topic"
                    self._problem(("source", reader.name, key), f"{told}: {fix}")

    def _dead_letter_key(self, source: Source) -> tuple[str, ...]:
        own = ("source", source.name, "dead_letter")
        return own if self._has_own_letters(source) else ("pipeline", "dead_letter")

    def _has_own_letters(self, source: Source) -> bool:
        given = self._reader((), self.tables).table("source")[source.name]
        return isinstance(given, dict) and "dead_letter" in given

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
    """Spark's file sink only appends."""
    return ("append",) if kind == PARQUET else ("append", "complete", "update")
