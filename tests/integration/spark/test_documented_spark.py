"""The Python of docs/spark.md runs as it stands there, but for the port and the data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.documents import ROOT, blocks
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import StartBroker


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
        if block.language == "python"
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
