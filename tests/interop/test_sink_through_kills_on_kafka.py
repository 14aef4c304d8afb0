"""The exactly-once sink's own code against Apache Kafka, while drivers, workers and Kafka are
killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.interop.apache_kafka import ApacheKafkaBroker
from tests.support.sink_kill_harness import SinkKillHarness


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def test_every_row_is_there_once_on_kafka(version: str, tmp_path: Path) -> None:
    broker = ApacheKafkaBroker(version, tmp_path)
    harness = SinkKillHarness(tmp_path, batches=24, kills=8, seed=1, broker=broker)
    try:
        harness.run()
    finally:
        harness.close()
    assert harness.killed == {"driver": 2, "worker": 2, "zombie": 2, "broker": 2}
