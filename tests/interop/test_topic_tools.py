"""kafka-topics, kafka-configs, kafka-get-offsets and kafka-delete-records of both releases."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION, jars_or_reason
from tests.support.broker_process import BrokerProcess
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, produce

CACHE = Path(__file__).resolve().parents[2] / ".bench"
TOOL_TIMEOUT_S = 120
PARTITION_LINE = re.compile(
    r"\s*Topic: t\s+Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        yield process


class Tools:
    def __init__(self, libs: Path, bootstrap: str) -> None:
        self._libs = libs
        self._bootstrap = bootstrap

    def topics(self, *arguments: str) -> list[str]:
        return self._run("org.apache.kafka.tools.TopicCommand", *arguments)

    def configs(self, *arguments: str) -> list[str]:
        return self._run("kafka.admin.ConfigCommand", *arguments)

    def offsets(self, *arguments: str) -> list[str]:
        return self._run("org.apache.kafka.tools.GetOffsetShell", *arguments)

    def delete_records(self, plan: Path) -> list[str]:
        tool = "org.apache.kafka.tools.DeleteRecordsCommand"
        return self._run(tool, "--offset-json-file", str(plan))

    def _run(self, tool: str, *arguments: str) -> list[str]:
        named = (tool, "--bootstrap-server", self._bootstrap, *arguments)
        done = subprocess.run(
            ["java", "-Xmx256m", "-cp", f"{self._libs}/*", *named],
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()


@pytest.fixture(params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def tools(request: pytest.FixtureRequest, broker: BrokerProcess) -> Tools:
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, request.param)
    if isinstance(libs, str):
        pytest.skip(libs)
    return Tools(libs, broker.bootstrap)


def test_a_topic_is_made_shown_grown_and_deleted(tools: Tools) -> None:
    one = ("--topic", "t")
    tools.topics("--create", *one, "--partitions", "2", "--config", "cleanup.policy=compact")
    assert tools.topics("--list") == ["t"]
    tools.topics("--alter", *one, "--partitions", "3")
    head, *partitions = tools.topics("--describe", *one)
    assert "PartitionCount: 3" in head
    assert "ReplicationFactor: 1" in head
    assert "cleanup.policy=compact" in head
    found = [PARTITION_LINE.match(line) for line in partitions]
    assert [row and row.groups() for row in found] == [(f"{n}", "0", "0", "0") for n in range(3)]
    tools.topics("--delete", *one)
    assert "t" not in tools.topics("--list")


def test_the_settings_of_a_topic_are_changed_and_shown(tools: Tools) -> None:
    one = ("--entity-type", "topics", "--entity-name", "t")
    tools.topics("--create", "--topic", "t")
    tools.configs("--alter", *one, "--add-config", "retention.ms=1000,segment.bytes=2000000")
    tools.configs("--alter", *one, "--delete-config", "segment.bytes")
    _, line = tools.configs("--describe", *one)
    assert line.split()[0] == "retention.ms=1000"
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in line
    every = tools.configs("--describe", "--all", *one)
    assert any(row.split()[0] == "segment.bytes=1073741824" for row in every if row.strip())


def test_records_are_deleted_up_to_an_offset(
    tools: Tools, broker: BrokerProcess, tmp_path: Path
) -> None:
    tools.topics("--create", "--topic", "t", "--partitions", "1")
    with RawClient(broker.bootstrap) as client:
        for _ in range(5):
            produce(client, "t", batch(b"x"))
    assert tools.offsets("--topic", "t") == ["t:0:5"]
    plan = tmp_path / "plan.json"
    rows = [{"topic": "t", "partition": 0, "offset": 3}]
    plan.write_text(json.dumps({"partitions": rows, "version": 1}))
    assert "partition: t-0\tlow_watermark: 3" in tools.delete_records(plan)
    assert tools.offsets("--topic", "t", "--time", "earliest") == ["t:0:3"]
