"""The Python of docs/spark.md runs as it stands there, but for the port and the data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark.test_exported_projects import RUN_TIMEOUT_S, run, spark_pipelines
from tests.support.documents import ROOT, blocks
from tests.support.eventually import eventually
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import StartBroker


# In the program of a Spark Declarative Pipeline, which Spark itself calls.
DECLARATIVE = "from pyspark import pipelines"
SPEC = """\
name: shop
storage: "{folder}/storage"
libraries:
  - glob:
      include: transformations/**
"""


def with_places(text: str, places: Mapping[str, str]) -> str:
    for theirs, ours in places.items():
        text = text.replace(theirs, ours)
    return text


def test_the_programs_of_the_spark_page_run_in_their_order(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    """The stream of the second one would never end, so it is stopped once it has read a batch."""
    broker = start_broker()
    places = {
        "127.0.0.1:9092": broker.bootstrap,
        "/var/lib/tidelog": str(broker.data_directory),
        "/tmp/copies-checkpoint": str(tmp_path / "checkpoint"),
        "/tmp/letters-checkpoint": str(tmp_path / "letters"),
    }
    write, stream, *others = [
        with_places(block.text, places)
        for block in blocks(ROOT / "docs" / "spark.md")
        if block.language == "python" and DECLARATIVE not in block.text
    ]
    names: dict[str, Any] = {}
    exec(write, names)
    exec(stream.replace(".start().awaitTermination()", ".start()"), names)
    (query,) = spark.streams.active
    eventually(lambda: query.lastProgress is not None or not query.isActive)
    query.stop()
    assert query.exception() is None
    for program in others[:-1]:
        exec(program, names)
    rows = eval(others[-1], names)
    assert rows.where("cast(value as string) = 'hello'").count() == 1000
    letters = spark.read.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap)
    (letter,) = letters.option("subscribe", "sales.dead-letter").load().collect()
    assert letter.value == b'{"cents": 7}'


@pytest.mark.timeout(2 * RUN_TIMEOUT_S)
def test_the_declarative_program_of_the_spark_page_runs(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    command = spark_pipelines()
    broker = start_broker()
    topics = SparkTopics(broker.bootstrap)
    topics.create("sales.dead-letter")
    topics.create("sales")
    values = ['{"shop": "north", "cents": 5}', '{"cents": 7}', '{"shop": "south", "cents": -1}']
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    rows = spark.createDataFrame([(value,) for value in values], "value string")
    rows.write.format("tidelog").options(**kafka, topic="sales").mode("append").save()
    (program,) = (
        block.text for block in blocks(ROOT / "docs" / "spark.md") if DECLARATIVE in block.text
    )
    (tmp_path / "transformations").mkdir()
    file = tmp_path / "transformations" / "shop.py"
    file.write_text(with_places(program, {"127.0.0.1:9092": broker.bootstrap}))
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(SPEC.format(folder=tmp_path.as_uri()))

    run(command, "--remote", "local[2]", "run", "--spec", str(spec), cwd=tmp_path)

    (sale,) = spark.read.parquet(str(tmp_path / "spark-warehouse" / "sales")).collect()
    assert (sale.shop, sale.cents) == ("north", 5)
    letters = spark.read.format("tidelog").options(**kafka, subscribe="sales.dead-letter").load()
    (letter,) = letters.collect()
    assert letter.value == b'{"cents": 7}'
