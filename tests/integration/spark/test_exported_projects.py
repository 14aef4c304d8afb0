"""Projects of `tidelog pipeline export --sdp`: spark-pipelines writes the pipeline's rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark.test_pipeline import dict_of, fill
from tests.support.documents import ROOT
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import StartBroker

RUN_TIMEOUT_S = 600
# So that two pipelines read the same records and write to different topics.
OUTPUTS = ("shop.revenue", "shop.dead-letter")
CHECKED = """\
[expect.large]
on = "orders"
sql = "amount_cents < 100000"
on_fail = "dead-letter"
[expect.paid_by_card]
on = "paid_orders"
sql = "method = 'card' or method = 'cash'"
"""


def spark_pipelines() -> str:
    for module in ("grpc", "yaml"):
        pytest.importorskip(module, reason="pip install 'pyspark[pipelines]'")
    return shutil.which("spark-pipelines", path=str(Path(sys.executable).parent)) or pytest.skip(
        "this pyspark has no spark-pipelines"
    )


def declare(folder: Path, bootstrap: str, outputs: str) -> Path:
    from tidelog.pipeline.declaration.example import write_example

    file = write_example(folder, bootstrap)
    text = file.read_text()
    for topic in OUTPUTS:
        text = text.replace(f'"{topic}"', f'"{outputs}.{topic}"')
    file.write_text(text + CHECKED)
    return folder


def written(topics: SparkTopics, topic: str) -> list[tuple[Any, ...]]:
    """Committed records; of a dead letter also where it stood and why."""
    from tidelog.demo.ledger_check import read_all

    rows = read_all(topics.bootstrap, topic)
    return sorted(
        (row["key"], row["value"], sorted(dict_of(row["headers"] or []).items())) for row in rows
    )


def run(*command: str, cwd: Path | None = None) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-5_000:]}\n{done.stderr[-10_000:]}"


@pytest.mark.timeout(3 * RUN_TIMEOUT_S)
def test_an_exported_project_writes_the_rows_that_the_pipeline_writes(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    from tidelog.pipeline.declaration.file import load_pipeline
    from tidelog.pipeline.queries.start import start_queries
    from tidelog.pipeline.topics import prepare_topics

    command = spark_pipelines()
    broker = start_broker()
    topics = SparkTopics(broker.bootstrap)
    ours = declare(tmp_path / "ours", broker.bootstrap, "ours")
    theirs = declare(tmp_path / "theirs", broker.bootstrap, "theirs")
    project = tmp_path / "project"
    run("tidelog", "pipeline", "export", str(theirs), "--sdp", str(project))
    run(sys.executable, str(project / "create_topics.py"))
    pipeline = load_pipeline(ours, {"trigger": "available-now"})
    prepare_topics(pipeline)
    for name in ("orders", "payments"):
        lines = (ROOT / "examples" / "shop-events" / f"{name}.jsonl").read_bytes().splitlines()
        too_large = [
            line.replace(b'"amount_cents": ', b'"amount_cents": 99999') for line in lines[:1]
        ]
        fill(topics, f"shop.{name}", [*lines, b"<broken/>", *too_large])

    running = start_queries(spark, pipeline)
    try:
        running.watch(lambda: None, 0.2)
    finally:
        running.stop()
    running.raise_failure()
    spec = str(project / "spark-pipeline.yml")
    run(command, "--remote", "local[2]", "run", "--spec", spec)

    for topic in OUTPUTS:
        found = written(topics, f"theirs.{topic}")
        assert found == written(topics, f"ours.{topic}")
        assert found
    assert len(written(topics, "theirs.shop.dead-letter")) == 3  # two broken, one too large
    rows = [
        sorted(spark.read.parquet(str(folder / "paid_orders")).collect())
        for folder in (ours, theirs)
    ]
    assert rows[0] == rows[1]
    assert rows[0]

    # A second run goes on from its checkpoint, and there is nothing new.
    before = written(topics, "theirs.shop.revenue")
    run(command, "--remote", "local[2]", "run", "--spec", spec)
    assert written(topics, "theirs.shop.revenue") == before
