"""Files that test a pipeline, as far as they go without Spark."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tidelog.pipeline.declaration.example import write_example
from tidelog.pipeline.declaration.file import load_pipeline
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError
from tidelog.pipeline.fixtures import canonical, load_fixtures


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    write_example(tmp_path / "shop")
    return load_pipeline(tmp_path / "shop")


def written(pipeline: Pipeline, text: str) -> None:
    (pipeline.folder / "tests" / "revenue.toml").write_text(text)


def test_the_example_has_a_test(pipeline: Pipeline) -> None:
    (fixture,) = load_fixtures(pipeline)
    assert fixture.name == "revenue"
    assert [set(step) for step in fixture.steps] == [{"orders", "payments"}] * 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[step]]\nordres = [{}]\n[expect]\nrevenue = []\n", "ordres is not of the pipeline"),
        ("[[step]]\norders = [{}]\n[expect]\nrevenu = []\n", "revenu is not of the pipeline"),
        ("[[step]]\norders = [1]\n[expect]\nrevenue = []\n", "expected a list of tables"),
        ("[[step]]\norders = [{}]\n", "needs a .*step.* with records, and .expect. with rows"),
        ("[steps]\n", "steps: there is only"),
        ("[[step]\n", "is no valid TOML"),
    ],
)
def test_a_mistake_in_a_test_is_told(pipeline: Pipeline, text: str, told: str) -> None:
    written(pipeline, text)
    with pytest.raises(PipelineError, match=told):
        load_fixtures(pipeline)


@pytest.mark.parametrize(
    ("format", "told"),
    [
        (
            'format = "csv"',
            "orders: b, id: columns would be written.* reads csv; .* _value$",
        ),
        ('framing = "confluent"', "reads json with framing; give the record as _value_base64$"),
    ],
)
def test_columns_are_only_for_sources_of_json(tmp_path: Path, format: str, told: str) -> None:
    """Each record would be a dead letter, or a row whose first column is the JSON."""
    (tmp_path / "tests").mkdir()
    text = f"""\
[pipeline]
name = "shop"
[source.orders]
topic = "orders"
{format}
schema = "id string, b bigint"
[sink.out]
from = "orders"
topic = "out"
"""
    (tmp_path / "pipeline.toml").write_text(text)
    pipeline = load_pipeline(tmp_path)
    test = tmp_path / "tests" / "one.toml"
    test.write_text('[[step]]\norders = [{ id = "x", b = 1, _key = "k" }]\n[expect]\nout = []\n')
    with pytest.raises(PipelineError, match=told):
        load_fixtures(pipeline)
    test.write_text('[[step]]\norders = [{ _value = "x,1" }]\n[expect]\nout = []\n')
    load_fixtures(pipeline)


def test_a_pipeline_without_tests_says_where_they_go(pipeline: Pipeline) -> None:
    (pipeline.folder / "tests" / "revenue.toml").unlink()
    with pytest.raises(PipelineError, match="has no tests; write one as"):
        load_fixtures(pipeline)


def test_rows_are_equal_whatever_the_order_of_their_columns_and_the_zone_of_their_times() -> None:
    noon = datetime.datetime.fromisoformat("2026-01-05T12:00:00+02:00")
    assert canonical({"at": noon, "a": 1}) == canonical({"a": 1, "at": "2026-01-05T10:00:00.000Z"})
