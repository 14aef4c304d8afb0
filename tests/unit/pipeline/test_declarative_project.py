"""A declaration as a project of Spark Declarative Pipelines: its files, and what is refused."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tidelog.pipeline.declaration.example import EXAMPLE
from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError
from tidelog.pipeline.declarative_project import (
    CODE_FILE,
    SPEC_FILE,
    TOPICS_FILE,
    project_files,
    write_project,
)

TEXT = """\
[pipeline]
name = "till"
bootstrap = "host:9"
checkpoint = "s3a://bucket/till"
[kafka]
"client.id" = "${env:TILL_CLIENT}"
[source.class]
topic = "till.sales"
schema = "shop string not null, cents bigint"
tombstones = "drop"
[expect.positive]
on = "class"
sql = "cents > 0"
on_fail = "dead-letter"
[expect.known]
on = "class"
sql = "shop <> 'test'"
[sink.class]
from = "class"
topic = "till.clean"
delivery = "at-least-once"
options = { "kafka.linger.ms" = "5" }
"""


def parsed(text: str, folder: Path = Path("/shop")) -> Pipeline:
    return parse_pipeline(folder / "pipeline.toml", text, {})


def code(pipeline: Pipeline) -> str:
    text = project_files(pipeline)[CODE_FILE].decode()
    ast.parse(text)
    return text


def refusal(text: str, folder: Path = Path("/shop")) -> str:
    with pytest.raises(PipelineError) as caught:
        project_files(parsed(text, folder))
    return str(caught.value)


def test_the_example_has_views_for_its_sources_and_views_and_flows_for_its_sinks() -> None:
    text = code(parsed(EXAMPLE))
    for name in ("orders", "payments", "paid_orders", "revenue"):
        assert f'dp.temporary_view(name="{name}")(table_{name})' in text
    for target in ("revenue_sink", "paid_orders_sink", "dead_letters_of_orders_sink"):
        assert f'dp.create_sink("{target}"' in text
        assert f'@dp.append_flow(target="{target}"' in text
    assert 'rows.withWatermark("ordered_at", "10 minutes")' in text
    assert '"deliveryGuarantee": "exactly-once"' in text
    assert 'dp.create_sink("paid_orders_sink", "parquet", {"path": "/shop/paid_orders"})' in text


def test_the_code_imports_what_it_uses_and_nothing_else() -> None:
    imported = [line for line in code(parsed(EXAMPLE)).splitlines() if " import " in line]
    assert imported == [
        "from pyspark import pipelines as dp",
        "from pyspark.sql import SparkSession",
        "from pyspark.sql.types import StructType",
        "from tidelog.spark.decoding import dead_letters, decode, good_rows",
        "from tidelog.spark.encoding import encode, without_headers",
        "from tidelog.spark.record_format import RecordFormat",
    ]


def test_sql_stays_as_it_is_written() -> None:
    (view,) = (row for row in parsed(EXAMPLE).views if row.name == "revenue")
    assert view.sql in code(parsed(EXAMPLE))


def test_the_spec_has_sparks_settings_and_a_storage_beside_the_checkpoint() -> None:
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load(project_files(parsed(EXAMPLE))[SPEC_FILE])
    assert spec["name"] == "shop"
    assert spec["storage"] == "file:///shop/checkpoint-sdp"
    assert spec["configuration"]["spark.sql.shuffle.partitions"] == "2"
    assert spec["configuration"]["spark.sql.session.timeZone"] == "UTC"
    assert spec["libraries"] == [{"glob": {"include": "transformations/**"}}]


def test_expectations_tombstones_and_options_are_those_of_the_declaration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILL_CLIENT", "a-secret")
    pipeline = parsed(TEXT)
    text = code(pipeline)
    assert 'decode(rows, format_class, tombstones="drop")' in text
    letters, dropped = (line.strip() for line in text.splitlines() if "expect(rows" in line)
    assert letters == 'rows = expect(rows, "positive", "cents > 0", "dead-letter", of="class")'
    assert dropped == """rows = expect(rows, "known", "shop <> 'test'", "drop", of="class")"""
    assert text.index(letters) < text.index("good_rows(") < text.index(dropped)
    assert '"deliveryGuarantee": "at-least-once",\n    "topic": "till.clean"' in text
    assert '"kafka.linger.ms": "5"' in text
    everything = b"".join(project_files(pipeline).values()).decode()
    assert "${env:TILL_CLIENT}" in everything
    assert "a-secret" not in everything
    assert '"s3a://bucket/till-sdp"' in everything


def test_topics_are_made_as_the_declaration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILL_CLIENT", "x")
    text = TEXT.replace(
        'topic = "till.clean"',
        'topic = "till.clean"\npartitions = 3\nreplication = 2\ntopic_config = { "a.b" = "c" }',
    )
    made = project_files(parsed(text))[TOPICS_FILE].decode()
    ast.parse(made)
    assert 'create_missing_topics(KAFKA, {"till.dead-letter": None})' in made
    told = '{"till.clean": 3}, replication_factor=2, configs={"a.b": "c"})'
    assert f"create_missing_topics(KAFKA, {told}" in made


def test_a_sink_never_has_the_name_of_a_view() -> None:
    text = EXAMPLE.replace(
        "[view.paid_orders]", "[view.revenue_sink]\nsql = 'select 1 as one'\n[view.paid_orders]"
    )
    assert 'dp.create_sink("revenue_sink_"' in code(parsed(text))


def test_files_of_views_and_schemas_go_along(tmp_path: Path) -> None:
    (tmp_path / "views.py").write_text("import json\ndef paid(spark, sales):\n    return sales\n")
    (tmp_path / "sale.avsc").write_text("{}")
    (tmp_path / "by-id").mkdir()
    schema = {"type": "record", "name": "Sale", "fields": [{"name": "shop", "type": "string"}]}
    (tmp_path / "by-id" / "7.avsc").write_text(json.dumps(schema))
    text = """\
[pipeline]
name = "till"
[source.sales]
topic = "sales"
format = "avro"
framing = "confluent"
schemas = "by-id"
avro_schema = "sale.avsc"
schema = "shop string"
[view.paid]
python = "views.py:paid"
inputs = ["sales"]
[sink.paid]
from = "paid"
topic = "paid"
"""
    pipeline = parsed(text, tmp_path)
    made = code(pipeline)
    assert 'schema_file=PROJECT / "schemas/sales.avsc"' in made
    assert 'schemas=SchemaFolder(PROJECT / "schemas/sales")' in made
    told = 'runpy.run_path(str(PROJECT / "views/paid.py"))["paid"]'
    assert f"{told}(spark, table_sales())" in made
    names = {
        file.relative_to(tmp_path / "out") for file in write_project(pipeline, tmp_path / "out")
    }
    added = {"views/paid.py", "schemas/sales.avsc", "schemas/sales/7.avsc", TOPICS_FILE}
    assert {str(name) for name in names} == {SPEC_FILE, CODE_FILE, *added}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(PipelineError, match="is there already and not empty; name another folder"):
        write_project(parsed(EXAMPLE), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


SINK = (
    '[pipeline]\nname = "a"\n[source.s]\ntopic = "s"\nschema = "x string"\n[sink.out]\nfrom = "s"\n'
)


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("console = true", "pipeline.toml:6: [sink.out] console: Spark prints it where nobody"),
        ('topic = "o"\nmode = "complete"', "[sink.out] mode: flows into sinks only append"),
        ('topic = "o"\nmode = "update"', "[sink.out] mode: flows into sinks only append"),
        (
            'parquet = "o"\npartition_by = ["x"]',
            "[sink.out] partition_by: sinks have no partitions",
        ),
        (
            'topic = "o"\nframing = "confluent"\nregistry = "http://r:1"',
            "[sink.out] format: json with framing needs the columns",
        ),
    ],
)
def test_what_a_project_cannot_do_is_refused_with_its_line(sink: str, told: str) -> None:
    assert told in refusal(SINK + sink)


def test_a_sink_of_avro_is_refused(tmp_path: Path) -> None:
    (tmp_path / "o.avsc").write_text("{}")
    text = SINK + 'topic = "o"\nformat = "avro"\navro_schema = "o.avsc"'
    assert "[sink.out] format: avro needs the columns" in refusal(text, tmp_path)


def test_a_view_that_imports_what_stands_beside_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rates.py").write_text("")
    (tmp_path / "views.py").write_text("from rates import euro\ndef v(spark, s):\n    return s\n")
    view = '[view.v]\npython = "views.py:v"\ninputs = ["s"]\n[sink'
    text = SINK.replace("[sink", view, 1) + 'topic = "o"'
    assert "[view.v] python: imports rates beside it" in refusal(text, tmp_path)


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (
            '[view.w]\nsql = "select * from s"\nwatermark = { column = "at", delay = "1 second" }',
            "[view.w] watermark: cannot be of a view in SQL",
        ),
        (
            '[view.w]\nsql = "select * from s"\n[view.v]\npython = "views.py:v"\ninputs = ["w"]',
            "[view.v] inputs: a function cannot be given the view w in SQL",
        ),
    ],
)
def test_what_needs_the_columns_of_a_view_in_sql_is_refused(
    view: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "views.py").write_text("def v(spark, s):\n    return s\n")
    text = SINK.replace("[sink", f"{view}\n[sink", 1) + 'topic = "o"'
    assert told in refusal(text, tmp_path)


def test_secrets_never_get_into_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_KEY", "hidden")
    settings = '[spark]\n"spark.hadoop.fs.s3a.secret.key" = "${env:S3_KEY}"\n'
    told = refusal(SINK + 'topic = "o"\n' + settings)
    assert "spark.hadoop.fs.s3a.secret.key has its value from a reference" in told
    assert "hidden" not in told
    avro = 'format = "avro"\nframing = "confluent"\nschema'
    registry = (
        '[registry]\n"schema.registry.url" = "http://r:1"\n"basic.auth.user.info" = "u:hidden"\n'
    )
    told = refusal(SINK.replace("schema", avro, 1) + 'topic = "o"\n' + registry)
    assert "pipeline.toml:3: [source.s] registry: the project would hold the password" in told
    assert "u:hidden" not in told


def test_of_a_folder_of_schemas_only_the_schemas_are_taken(tmp_path: Path) -> None:
    (tmp_path / "ids" / "older").mkdir(parents=True)
    (tmp_path / "ids" / "README.md").write_text("what these are")
    (tmp_path / "ids" / "7.avsc").write_text('"string"')
    text = TEXT.replace("${env:TILL_CLIENT}", "till").replace(
        'topic = "till.sales"',
        'topic = "till.sales"\nformat = "avro"\nframing = "confluent"\nschemas = "ids"',
    )
    found = project_files(parsed(text, tmp_path))
    assert [name for name in found if name.startswith("schemas/")] == ["schemas/class/7.avsc"]
