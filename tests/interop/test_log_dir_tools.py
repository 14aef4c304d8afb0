"""kafka-log-dirs of both releases, against a broker of two directories and a replica on its way."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION, jars_or_reason
from tests.support.broker_process import BrokerProcess
from tests.support.log_dirs import home, move
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, create_topic, produce

CACHE = Path(__file__).resolve().parents[2] / ".bench"
TOOL_TIMEOUT_S = 120


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    dirs = ",".join(str(tmp_path / name) for name in ("d0", "d1"))
    settings = {"log.dirs": dirs, "replica.alter.log.dirs.io.max.bytes.per.second": "1"}
    with BrokerProcess(tmp_path, settings) as process:
        yield process


def described(libs: Path, bootstrap: str, topic: str) -> dict[str, Any]:
    """The directories by name, of the only broker."""
    tool = ("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", bootstrap)
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{libs}/*", *tool, "--describe", "--topic-list", topic],
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=True,
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    (only,) = json.loads(line)["brokers"]
    return {Path(row["logDir"]).name: row for row in only["logDirs"]}


@pytest.mark.parametrize("version", [KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def test_kafka_log_dirs_shows_a_replica_on_its_way(
    broker: BrokerProcess, tmp_path: Path, version: str
) -> None:
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, version)
    if isinstance(libs, str):
        pytest.skip(libs)
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "t")
        for _ in range(20):
            produce(client, "t", batch(b"x" * 1000))
        here = home(client, "t")
        there = "d1" if here == "d0" else "d0"
        assert move(client, tmp_path / there, "t") == 0
    found = described(libs, broker.bootstrap, "t")
    assert [row["error"] for row in found.values()] == [None, None]
    (current,) = found[here]["partitions"]
    (future,) = found[there]["partitions"]
    assert (current["isFuture"], current["offsetLag"]) == (False, 0)
    assert future["isFuture"] is True
    assert 0 < future["offsetLag"] <= 20
