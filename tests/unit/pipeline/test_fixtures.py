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


def test_a_pipeline_without_tests_says_where_they_go(pipeline: Pipeline) -> None:
    (pipeline.folder / "tests" / "revenue.toml").unlink()
    with pytest.raises(PipelineError, match="has no tests; write one as"):
        load_fixtures(pipeline)


def test_rows_are_equal_whatever_the_order_of_their_columns_and_the_zone_of_their_times() -> None:
    noon = datetime.datetime.fromisoformat("2026-01-05T12:00:00+02:00")
    assert canonical({"at": noon, "a": 1}) == canonical({"a": 1, "at": "2026-01-05T10:00:00.000Z"})
