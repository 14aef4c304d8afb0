"""Queries of Spark tests, written once."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 300


def _pyspark_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "0"


needs_limits = pytest.mark.skipif(
    _pyspark_version().startswith("4.1"), reason="pyspark 4.1 has no limits a trigger"
)


def batch(spark: SparkSession, bootstrap: str | None, **options: str) -> DataFrame:
    """A batch read; dots in option names are written as double underscores."""
    return _with(spark.read.format("tidelog"), bootstrap, options).load()


def stream(spark: SparkSession, bootstrap: str | None, **options: str) -> DataFrame:
    return _with(spark.readStream.format("tidelog"), bootstrap, options).load()


def _with(reader: Any, bootstrap: str | None, options: dict[str, str]) -> Any:
    if bootstrap is not None:
        reader = reader.option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader


def numbers(frame: DataFrame) -> list[int]:
    """The values as numbers, in order."""
    return sorted(int(row.value) for row in frame.selectExpr("cast(value as string)").collect())


def run_available_now(frame: DataFrame, output: Path, checkpoint: Path) -> StreamingQuery:
    """Runs to its end, rows to Parquet; raises what made the query fail."""
    query = start(frame, output, checkpoint, availableNow=True)
    assert query.awaitTermination(TIMEOUT_S), "the query did not end"
    return query


def start(frame: DataFrame, output: Path, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(output))
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def written(spark: SparkSession, output: Path) -> list[int]:
    return numbers(spark.read.parquet(str(output)))
