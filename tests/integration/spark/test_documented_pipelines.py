"""The pipelines and commands of docs/pipelines.md run as they stand there, and so does the example
that `init` writes; only the broker is another, and reading ends with the data.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.conftest import missing
from tests.support.documents import ROOT, Block, blocks
from tests.support.eventually import eventually
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import StartBroker
    from tidelog.pipeline.declaration.parts import Pipeline

PAGE = ROOT / "docs" / "pipelines.md"
TIDELOG = str(Path(sys.executable).parent / "tidelog")
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120


def pipelines() -> list[Block]:
    return [
        block
        for block in blocks(PAGE)
        if block.language == "toml" and "pipeline" in tomllib.loads(block.text)
    ]


def run_to_the_end(spark: SparkSession, pipeline: Pipeline) -> None:
    from tidelog.pipeline.queries.start import start_queries

    running = start_queries(spark, pipeline)
    try:
        running.watch(lambda: None, 0.2)
    finally:
        running.stop()
    running.raise_failure()


@pytest.mark.parametrize("block", pipelines(), ids=lambda block: block.place)
def test_every_pipeline_of_the_page_runs(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path, block: Block
) -> None:
    from tidelog.pipeline.declaration.file import parse_pipeline
    from tidelog.pipeline.topics import prepare_topics

    broker = start_broker()
    overrides = {"trigger": "available-now", "bootstrap": broker.bootstrap}
    pipeline = parse_pipeline(tmp_path / "pipeline.toml", block.text, overrides)
    topics = SparkTopics(broker.bootstrap)
    for source in pipeline.sources:
        if source.creation.partitions is None:
            for topic in source.topics:
                topics.create(topic)
    prepare_topics(pipeline)
    for source in pipeline.sources:
        for topic in source.topics:
            topics.fill(topic, range(3))
    run_to_the_end(spark, pipeline)


def test_the_python_of_the_page_is_a_view(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    from tidelog.pipeline.declaration.file import parse_pipeline

    programs = [block.text for block in blocks(PAGE) if block.language == "python"]
    (program,) = [text for text in programs if "def paid(" in text]
    (tmp_path / "views.py").write_text(program)
    text = pipelines()[0].text.split("[view.")[0].replace("shop.orders", topic_name)
    text += '[view.paid]\npython = "views.py:paid"\ninputs = ["orders"]\n'
    text += '[sink.paid]\nfrom = "paid"\nparquet = "paid"\n'
    overrides = {"trigger": "available-now", "bootstrap": topics.bootstrap}
    pipeline = parse_pipeline(tmp_path / "pipeline.toml", text, overrides)
    topics.create(topic_name)
    order = {"order_id": "o1", "amount_cents": 5, "ordered_at": "2026-01-05T08:00:00Z"}
    values = [json.dumps(row).encode() for row in (order, {**order, "amount_cents": 0})]
    topics.fill(topic_name, range(2), value=values)
    run_to_the_end(spark, replace(pipeline, name=topic_name))
    assert spark.read.parquet(str(tmp_path / "paid")).count() == 1


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TIDELOG, "pipeline", *arguments],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )


def test_the_tests_of_the_page_and_of_the_example_pass_and_show_rows_that_differ(
    spark: SparkSession, tmp_path: Path
) -> None:
    from tidelog.pipeline.declaration.example import write_example
    from tidelog.pipeline.declaration.file import load_pipeline
    from tidelog.pipeline.fixtures import FixtureRun, load_fixtures

    write_example(tmp_path / "example")
    page = tmp_path / "page"
    (page / "tests").mkdir(parents=True)
    (page / "pipeline.toml").write_text(pipelines()[0].text)
    (shown,) = [block.text for block in blocks(PAGE) if block.text.startswith("[[step]]")]
    (page / "tests" / "shown.toml").write_text(shown)
    wrong = shown.replace("amount_cents = 450 }]", "amount_cents = 451 }]")
    (page / "tests" / "wrong.toml").write_text(wrong)
    found = {}
    for folder in (tmp_path / "example", page):
        pipeline = load_pipeline(folder)
        for fixture in load_fixtures(pipeline):
            run = FixtureRun(spark, pipeline, fixture, tmp_path / f"run-{fixture.name}")
            found[fixture.name] = [line for row in run.differences() for line in row.lines()]
    assert found == {
        "revenue": [],
        "shown": [],
        "wrong": [
            "  revenue",
            '    - {"amount_cents": 451, "start": "2026-01-05T08:00:00.000Z"}',
            '    + {"amount_cents": 450, "start": "2026-01-05T08:00:00.000Z"}',
        ],
    }


def test_the_example_runs_tells_its_status_restarts_a_query_and_stops_when_signalled(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """The signal goes to the whole group and once more to the process, as `timeout` sends it."""
    if reason := missing():
        pytest.skip(reason)
    broker = start_broker()
    folder = str(tmp_path / "shop")
    assert typed("init", folder).returncode == 0
    assert typed("validate", folder).returncode == 0
    assert "replays from the start" in typed("plan", folder).stdout
    command = [TIDELOG, "pipeline", "run", folder, "--bootstrap", broker.bootstrap]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def shown() -> str:
        return (tmp_path / "out").read_text()

    def status() -> str:
        told = typed("status", folder)
        return told.stdout if told.returncode == 0 else ""

    try:
        eventually(
            lambda: status().count("running") == 4 or process.poll() is not None,
            within_s=START_TIMEOUT_S,
        )
        assert process.poll() is None, shown()
        restarted = typed("restart", folder, "revenue", "--timeout", str(START_TIMEOUT_S / 2))
        assert restarted.stdout == "revenue started again\n", restarted.stderr
        os.killpg(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(STOP_TIMEOUT_S) == 0, shown()
    finally:
        process.kill()
        process.wait()
    assert "stopped; the next run goes on from the checkpoint" in shown()
    assert "until now: 0 rows written, 0 dead letters" in shown()
    assert "Traceback" not in shown()
    assert typed("status", folder).returncode == 1
    plan = typed("plan", folder)
    assert plan.returncode == 0
    assert plan.stdout.count(" safe") == 4
