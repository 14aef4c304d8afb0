"""examples/README.md on a standalone Spark cluster of two workers whose Python has no tidelog, with
three brokers over ZooKeeper: the package brings all that is missing, the compiled kernel too."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.spark.conftest import missing
from tests.support.cluster import ClusterProcess, read_all
from tests.support.documents import ROOT, blocks
from tests.support.spark_cluster import (
    SparkCluster,
    bare_environment,
    driver_environment,
    environment_of,
)

COMMAND_TIMEOUT_S = 900
pytestmark = pytest.mark.timeout(3 * COMMAND_TIMEOUT_S)
PAGE = ROOT / "examples" / "README.md"
COUNTS = {("/", 3), ("/tea", 1), ("/tea", 2)}
WHERE = """
[view.places]
python = "places.py:places"
inputs = ["views"]

[sink.places]
from = "places"
topic = "page-views.places"
"""
PLACES = """
from pyspark.sql import functions as F

def place(page):
    import lz4.frame, tidelog
    from tidelog.record import kernel
    return f"{tidelog.__file__} {lz4.frame.__file__} {kernel.COMPILED}"

def places(spark, views):
    return views.select(F.udf(place, "string")("page").alias("place"))
"""


class Stage(NamedTuple):
    directory: Path
    spark: SparkCluster
    brokers: ClusterProcess
    bare: Path
    driver: Path

    def types(self, command: str, commands: Path) -> str:
        """What it prints."""
        for theirs, ours in (
            ("127.0.0.1:9092", self.brokers.bootstrap),
            ("spark://127.0.0.1:7077", self.spark.master),
            ("/mnt/shared", str(self.directory / "shared")),
        ):
            command = command.replace(theirs, ours)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            env=environment_of(commands),
            check=False,
        )
        log = self.directory / "examples" / "page-views" / "spark.log"
        more = log.read_text()[-5000:] if log.exists() else ""
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{more}"
        return done.stdout

    def counts(self) -> list[tuple[str, int]]:
        found = read_all(self.brokers, "page-views.counts", 3)
        rows = [json.loads(value) for _, _, value in found]
        return [(row["page"], row["views"]) for row in rows]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    bare, driver = bare_environment(tmp_path / "bare"), driver_environment(tmp_path / "driver")
    brokers = ClusterProcess(tmp_path / "brokers")
    spark = SparkCluster(tmp_path / "spark", bare)
    try:
        brokers.start()
        spark.start()
        (tmp_path / "examples").mkdir()
        for file in (ROOT / "examples" / "page-views").iterdir():
            copy = tmp_path / "examples" / "page-views" / file.name
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(file.read_bytes())
        yield Stage(tmp_path, spark, brokers, bare, driver)
    finally:
        spark.close()
        brokers.close()


def commands_of(beginning: str) -> list[str]:
    found = [
        command
        for block in blocks(PAGE)
        if block.language == "sh"
        for command in block.commands
        if command.startswith(beginning)
    ]
    assert found, beginning
    return found


def test_workers_without_tidelog_run_a_packaged_pipeline_with_the_kernel(stage: Stage) -> None:
    lacks = subprocess.run(
        [stage.bare / "python3", "-c", "import tidelog"],
        env=environment_of(stage.bare),
        capture_output=True,
        check=False,
    )
    assert b"No module named 'tidelog'" in lacks.stderr
    declared = stage.directory / "examples" / "page-views" / "pipeline.toml"
    declared.write_text(declared.read_text() + WHERE)
    (declared.parent / "places.py").write_text(PLACES)
    for command in (
        *commands_of("tidelog topic create page-views"),
        *commands_of("tidelog produce page-views"),
        *commands_of("tidelog pipeline package"),
    ):
        stage.types(command, stage.driver)
    (on_cluster,) = (each for each in commands_of("tidelog pipeline run") if "--package" in each)
    assert "ended: 10 rows written, 1 dead letters" in stage.types(on_cluster, stage.driver)
    assert set(stage.counts()) == COUNTS

    places = {json.loads(v)["place"] for _, _, v in read_all(stage.brokers, "page-views.places", 1)}
    for place in places:
        package, lz4, is_compiled = place.split()
        unpacked = Path(package).parents[1]
        assert unpacked.name == "tidelog_package"
        assert unpacked.is_relative_to(stage.spark.directory)
        assert Path(lz4).is_relative_to(unpacked)
        assert is_compiled == "True"

    # Neither does the driver have it now.
    for command in (*commands_of("python3 -m zipfile"), *commands_of("PYTHONPATH=")):
        told = stage.types(command, stage.bare)
    assert "ended: " in told
    counts = stage.counts()
    assert set(counts) == COUNTS
    assert len(counts) == 2 * len(COUNTS)
