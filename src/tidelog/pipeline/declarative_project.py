"""A declaration as a project of Spark Declarative Pipelines, which `spark-pipelines run` executes.

    spark-pipeline.yml            the name, the storage of checkpoints, settings of Spark
    transformations/pipeline.py   sources and views as temporary views; flows into sinks
    create_topics.py              makes the topics that the pipeline would have made
    views/, schemas/              files of Python views, schemas of Avro and Protobuf

Spark resolves a view of a project only after the code has run, so code can select from such a view
and cannot do what needs its columns, such as a watermark. Sources have columns from the start.

The project calls the functions of `tidelog.spark` that the pipeline itself calls. SQL stays as it
is, so Spark's check that SQL says STREAM before a streaming view is off. What Declarative Pipelines
cannot do, or what would put a secret into a file, is refused with the line of the declaration.
`trigger` and `master` are no part of a project: `spark-pipelines run` reads what there is and ends.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from tidelog.pipeline.declaration.parts import (
    CONSOLE,
    PARQUET,
    TOPIC,
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Sink,
    Source,
    View,
    Watermark,
)
from tidelog.pipeline.frames.dataframes import topic_source_options
from tidelog.pipeline.frames.python_views import neighbours
from tidelog.pipeline.frames.sink_rows import topic_options
from tidelog.pipeline.topics import wanted_topics
from tidelog.spark.codecs.schema_registry import RegistrySettings, SchemaFolder
from tidelog.spark.decoding import DEAD_LETTER
from tidelog.spark.record_format import DECODED_FORMATS, JSON, RecordFormat

SPEC_FILE: Final = "spark-pipeline.yml"
CODE_FILE: Final = "transformations/pipeline.py"
TOPICS_FILE: Final = "create_topics.py"
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "pipelines.incompatibleViewCheck.enabled": "false",
}
# In groups, with the names that the code has if it uses them.
_IMPORTS: Final[tuple[dict[str, list[str]], ...]] = (
    {"import": ["runpy"], "from pathlib import": ["Path"]},
    {
        "from pyspark import": ["pipelines as dp"],
        "from pyspark.sql import": ["SparkSession"],
        "from pyspark.sql.types import": ["StructType"],
    },
    {
        "from tidelog.spark.codecs.schema_registry import": ["RegistrySettings", "SchemaFolder"],
        "from tidelog.spark.decoding import": ["dead_letters", "decode", "good_rows"],
        "from tidelog.spark.encoding import": ["encode", "without_headers"],
        "from tidelog.spark.expectations import": ["expect"],
        "from tidelog.spark.record_format import": ["RecordFormat"],
    },
)
_SECRET_FIELDS: Final = ("user_info", "token")


def write_project(pipeline: Pipeline, folder: Path) -> list[Path]:
    """The files written; raises PipelineError for what a project cannot be, and for a folder that
    has something in it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        told = "is there already and not empty; name another folder for the project"
        raise PipelineError(Problem(Place(folder, 0), told))
    written = []
    for name, content in project_files(pipeline).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        written.append(file)
    return written


def project_files(pipeline: Pipeline) -> dict[str, bytes]:
    """By name; raises PipelineError with every part that cannot be in a project."""
    problems = _problems(pipeline)
    if problems:
        raise PipelineError(*problems)
    files = {SPEC_FILE: _spec(pipeline).encode(), CODE_FILE: _Code(pipeline).text().encode()}
    if wanted_topics(pipeline):
        files[TOPICS_FILE] = _topics(pipeline).encode()
    for view in pipeline.views:
        if view.python_file is not None:
            files[_view_file(view)] = view.python_file.read_bytes()
    for source in pipeline.sources:
        if source.format.schema_file is not None:
            files[_schema_file(source)] = source.format.schema_file.read_bytes()
        if isinstance(source.format.schemas, SchemaFolder):
            for file in source.format.schemas.files:
                files[f"{_schema_folder(source)}/{file.name}"] = file.read_bytes()
    return files


# What cannot be


def _problems(pipeline: Pipeline) -> list[Problem]:
    found: list[tuple[int, str]] = [
        (0, f"{name} has its value from a reference, and the project would hold the value")
        for name in pipeline.hidden_settings
    ]
    for source in pipeline.sources:
        registry = source.format.schemas
        if isinstance(registry, RegistrySettings) and (registry.user_info or registry.token):
            told = "registry: the project would hold the password; use one without, or schemas"
            found.append((source.line, f"[source.{source.name}] {told}"))
    found += [row for view in pipeline.views for row in _view_problems(pipeline, view)]
    found += [row for sink in pipeline.sinks for row in _sink_problems(sink)]
    return [
        Problem(Place(pipeline.file, line), f"{told} (Spark Declarative Pipelines)")
        for line, told in found
    ]


def _view_problems(pipeline: Pipeline, view: View) -> list[tuple[int, str]]:
    told = "which has no columns until the project's code has run"
    if view.python_file is None:
        late = "watermark: cannot be of a view in SQL, " + told
        return [] if view.watermark is None else [(view.line, f"[view.{view.name}] {late}")]
    sql_views = {row.name for row in pipeline.views if row.python_file is None}
    if read := sorted(set(view.inputs) & sql_views):
        inputs = f"inputs: a function cannot be given the view {read[0]} in SQL, {told}"
        return [(view.line, f"[view.{view.name}] {inputs}")]
    beside = {file.stem for file in neighbours(view.python_file)}
    beside |= {file.parent.name for file in neighbours(view.python_file)}
    if imported := sorted(_imports(view.python_file) & beside):
        told = f"python: imports {', '.join(imported)} beside it, which Spark would not ship"
        return [(view.line, f"[view.{view.name}] {told}")]
    return []


def _imports(file: Path) -> set[str]:
    """Top-level names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def _sink_problems(sink: Sink) -> list[tuple[int, str]]:
    found = []
    if sink.kind == CONSOLE:
        found.append("console: Spark prints it where nobody looks; write a topic or Parquet")
    if sink.mode != "append":
        found.append(f"mode: flows into sinks only append, they have no {sink.mode}")
    if sink.kind == PARQUET and sink.partition_by:
        found.append("partition_by: sinks have no partitions")
    if sink.format.kind in DECODED_FORMATS or (
        sink.format.kind == JSON and sink.format.is_confluent
    ):
        told = f"format: {sink.format.kind}{' with framing' if sink.format.kind == JSON else ''}"
        found.append(f"{told} needs the columns, and Spark does not tell them to a project's code")
    return [(sink.line, f"[sink.{sink.name}] {told}") for told in found]


# The files


def _spec(pipeline: Pipeline) -> str:
    storage = pipeline.checkpoint.rstrip("/") + "-sdp"
    if "://" not in storage:
        storage = f"file://{storage}"
    settings = {**_SETTINGS, **pipeline.spark}
    lines = [
        f"# Made by `tidelog pipeline export --sdp` of {pipeline.file.name}.",
        f"name: {json.dumps(pipeline.name)}",
        f"storage: {json.dumps(storage)}",
        "configuration:",
        *(f"  {json.dumps(name)}: {json.dumps(text)}" for name, text in settings.items()),
        "libraries:",
        "  - glob:",
        "      include: transformations/**",
    ]
    return "\n".join(lines) + "\n"


def _topics(pipeline: Pipeline) -> str:
    lines = [
        '"""Makes the topics that are not there; run it before the first `spark-pipelines run`."""',
        "",
        "from tidelog.spark.topics import create_missing_topics",
        "",
        f"KAFKA = {_literal(_kafka(pipeline))}",
        "",
    ]
    for name, (_, row) in wanted_topics(pipeline).items():
        more = ""
        if row.replication is not None:
            more += f", replication_factor={row.replication}"
        if row.config:
            more += f", configs={_literal(row.config)}"
        lines.append(f"create_missing_topics(KAFKA, {_literal({name: row.partitions})}{more})")
    return "\n".join(lines) + "\n"


class _Code:
    """transformations/pipeline.py. Names of functions have prefixes, so that no name of the
    declaration hides one of Python."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        # Names of datasets; a sink or flow may not have that of a source or view.
        self._taken = {row.name for row in pipeline.sources} | {row.name for row in pipeline.views}

    def text(self) -> str:
        pipeline = self.pipeline
        parts = []
        for source in pipeline.sources:
            parts += [_source_format(source), self._records(source), self._source(source)]
        parts += [self._view(view) for view in pipeline.views]
        parts += [self._sink(sink) for sink in pipeline.sinks]
        parts += [self._letters(source) for source in pipeline.lettered_sources]
        body = "\n\n\n".join(parts)
        return f"{self._head(body)}\n\n\n{body}\n"

    def _head(self, body: str) -> str:
        """With what the body uses."""
        constants = [f"KAFKA = {_literal(_kafka(self.pipeline))}", "spark = SparkSession.active()"]
        if "PROJECT" in body:
            constants.insert(0, "PROJECT = Path(__file__).parent.parent")
        used = set(re.findall(r"\w+", "\n".join([*constants, body])))
        lines = [f'"""Made by `tidelog pipeline export --sdp` of {self.pipeline.file.name}."""']
        for group in _IMPORTS:
            needed = {
                statement: [name for name in names if name.split(" as ")[-1] in used]
                for statement, names in group.items()
            }
            found = [f"{how} {', '.join(names)}" for how, names in needed.items() if names]
            lines += ["", *found] if found else []
        return "\n".join([*lines, "", *constants])

    def _records(self, source: Source) -> str:
        options = topic_source_options(self.pipeline, source, streaming=True)
        more = self._beside_kafka(options)
        arguments = [f"rows, format_{source.name}"]
        if source.watermark is not None:
            arguments.append(f"required={_literal([source.watermark.column])}")
        if source.tombstones != DEAD_LETTER:
            arguments.append(f"tombstones={_literal(source.tombstones)}")
        lines = [
            f"def records_of_{source.name}():",
            f"    options = {_with_kafka(more, 4)}",
            '    rows = spark.readStream.format("tidelog").options(**options).load()',
            f"    rows = decode({', '.join(arguments)})",
            *self._expectations(source.name, of_records=True),
            "    return rows",
        ]
        return "\n".join(lines)

    def _source(self, source: Source) -> str:
        made = f"good_rows(records_of_{source.name}())"
        return self._table(source.name, made, source.watermark)

    def _view(self, view: View) -> str:
        if view.python_file is None:
            made = f"spark.sql({_literal(view.sql)})"
        else:
            file = f"str(PROJECT / {_literal(_view_file(view))})"
            inputs = "".join(f", table_{name}()" for name in view.inputs)
            made = f"runpy.run_path({file})[{_literal(view.function)}](spark{inputs})"
        return self._table(view.name, made, view.watermark)

    def _table(self, name: str, made: str, watermark: Watermark | None) -> str:
        """A decorator would leave nothing to call, so the function is registered below it."""
        lines = [f"def table_{name}():", f"    rows = {made}"]
        lines += self._expectations(name, of_records=False)
        late = (
            "" if watermark is None else _call("withWatermark", watermark.column, watermark.delay)
        )
        register = f"dp.temporary_view(name={_literal(name)})(table_{name})"
        return "\n".join([*lines, f"    return rows{late}", "", "", register])

    def _expectations(self, part: str, *, of_records: bool) -> list[str]:
        return [
            f"    rows = expect(rows, {_literal(row.name)}, {_literal(row.sql)}, "
            f"{_literal(row.on_fail)}, of={_literal(row.on)})"
            for row in self.pipeline.expectations_of(part)
            if (row.on_fail == DEAD_LETTER) is of_records
        ]

    def _sink(self, sink: Sink) -> str:
        if sink.kind == TOPIC:
            options = topic_options(self.pipeline, sink)
            key = f", key={_literal(sink.key)}" if sink.key else ""
            made = f"encode({_read(sink.source)}, {_format(sink.format)}{key})"
        else:
            options = {"path": sink.target, **sink.options}
            made = f"without_headers({_read(sink.source)})"
        kind = "tidelog" if sink.kind == TOPIC else "parquet"
        return self._flow(sink.name, f"sink_{sink.name}", kind, options, made)

    def _letters(self, source: Source) -> str:
        arguments = f"topic={_literal(source.dead_letter)}, source={_literal(source.name)}"
        made = f"dead_letters(records_of_{source.name}(), {arguments})"
        options = topic_options(self.pipeline, None)
        name = f"dead_letters_of_{source.name}"
        return self._flow(name, f"letters_of_{source.name}", "tidelog", options, made)

    def _flow(self, name: str, function: str, kind: str, options: dict[str, str], made: str) -> str:
        more = self._beside_kafka(options)
        told = _with_kafka(more, 0) if kind == "tidelog" else _literal(more)
        target, flow = self._free(f"{name}_sink"), self._free(f"{name}_flow")
        return "\n".join(
            [
                f"dp.create_sink({_literal(target)}, {_literal(kind)}, {told})",
                "",
                "",
                f"@dp.append_flow(target={_literal(target)}, name={_literal(flow)})",
                f"def {function}():",
                f"    return {made}",
            ]
        )

    def _beside_kafka(self, options: dict[str, str]) -> dict[str, str]:
        known = _kafka(self.pipeline)
        return {name: text for name, text in options.items() if known.get(name) != text}

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _source_format(source: Source) -> str:
    return f"format_{source.name} = {_format(source.format, source)}"


def _format(format: RecordFormat, source: Source | None = None) -> str:
    """As code; of a source with all that says how to decode."""
    arguments = [_literal(format.kind)]
    if format.schema:
        arguments.append(f"StructType.fromDDL({_literal(format.schema)})")
    if format.options:
        arguments.append(f"options={_literal(format.options)}")
    if source is None:
        return f"RecordFormat({', '.join(arguments)})"
    if format.schema_file is not None:
        arguments.append(f"schema_file=PROJECT / {_literal(_schema_file(source))}")
    if format.message:
        arguments.append(f"message={_literal(format.message)}")
    if format.is_confluent:
        arguments.append("is_confluent=True")
    if isinstance(format.schemas, SchemaFolder):
        arguments.append(f"schemas=SchemaFolder(PROJECT / {_literal(_schema_folder(source))})")
    elif format.schemas is not None:
        arguments.append(f"schemas={_registry(format.schemas)}")
    return f"RecordFormat({', '.join(arguments)})"


def _registry(settings: RegistrySettings) -> str:
    told = ", ".join(
        f"{field.name}={getattr(settings, field.name)!r}"
        for field in fields(settings)
        if field.name not in _SECRET_FIELDS
    )
    return f"RegistrySettings({told})"


def _view_file(view: View) -> str:
    assert view.python_file is not None, view
    return f"views/{view.name}.py"


def _schema_file(source: Source) -> str:
    assert source.format.schema_file is not None, source
    return f"schemas/{source.name}{source.format.schema_file.suffix}"


def _schema_folder(source: Source) -> str:
    return f"schemas/{source.name}"


def _kafka(pipeline: Pipeline) -> dict[str, str]:
    options = {f"kafka.{name}": text for name, text in pipeline.kafka.items()}
    return {**options, "kafka.bootstrap.servers": pipeline.bootstrap}


def _read(name: str) -> str:
    return f"spark.readStream.table({_literal(name)})"


def _call(method: str, *given: str) -> str:
    return f".{method}({', '.join(map(_literal, given))})"


def _with_kafka(more: dict[str, str], indent: int) -> str:
    """A dictionary of the clients' options and of others, a line each."""
    rows = "".join(f"{' ' * indent}    {_literal(k)}: {_literal(v)},\n" for k, v in more.items())
    return f"{{\n{' ' * indent}    **KAFKA,\n{rows}{' ' * indent}}}"


def _literal(value: Any) -> str:
    """With double quotes where it can; a text of several lines stands between three of them."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    written = repr(value)
    if not isinstance(value, str) or '"' in value:
        return written
    if "\n" in value and "\\" not in value:
        return f'"""{value}"""'
    return f'"{written[1:-1]}"'
