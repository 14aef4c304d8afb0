"""Apache Kafka 3.9 itself: a broker over a directory, and its tools, from the jars of bench.maven.

`kafka_or_skip` gives them or skips the test with the reason: no java, no mvn, no Maven Central.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.maven import KAFKA_VERSION, jars_or_reason
from bench.peers import ApacheKafka, BrokerProcess
from tests.support.eventually import eventually

CACHE = Path(__file__).resolve().parents[2] / ".bench"
TOOL_TIMEOUT_S = 120
SMALL = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.partition.verification.enable": "false",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "3600000",
    "group.initial.rebalance.delay.ms": "0",
}


class ToolOutput(NamedTuple):
    stdout: list[str]
    stderr: list[str]


def apache_kafka_or_reason(version: str = KAFKA_VERSION) -> ApacheKafka | str:
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, version)
    return libs if isinstance(libs, str) else ApacheKafka(libs, CACHE)


def kafka_or_skip(version: str = KAFKA_VERSION) -> ApacheKafka:
    found = apache_kafka_or_reason(version)
    if isinstance(found, str):
        pytest.skip(f"Apache Kafka is not here: {found}")
    return found


@contextmanager
def running(
    kafka: ApacheKafka, data: Path, overrides: Mapping[str, str] | None = None
) -> Iterator[BrokerProcess]:
    """A broker over a freshly formatted directory; stopped cleanly, the data stays."""
    process = BrokerProcess(kafka, data, {**SMALL, **(overrides or {})})
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.kill()


class ApacheKafkaBroker:
    """A broker of Apache Kafka that may be killed and started again."""

    def __init__(
        self, version: str, directory: Path, overrides: Mapping[str, str] | None = None
    ) -> None:
        settings = {**SMALL, **(overrides or {})}
        self._process = BrokerProcess(kafka_or_skip(version), directory / "kafka", settings)
        self._process.start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._process.port}"

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.stop()

    def start(self) -> None:
        self._process.start()


def dump_log_segments(kafka: ApacheKafka, arguments: Sequence[str], folder: Path) -> ToolOutput:
    """What kafka-dump-log.sh prints when it is run in `folder`."""
    done = subprocess.run(
        [*kafka.java(), "-Dfile.encoding=UTF-8", "kafka.tools.DumpLogSegments", *arguments],
        cwd=folder,
        capture_output=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    return ToolOutput(lines_of(done.stdout), lines_of(done.stderr))


def lines_of(output: bytes) -> list[str]:
    """By line feeds alone: keys and values may hold what Python takes for an end of line."""
    return output.decode().split("\n")[:-1]


def wait_for_cleaning(data: Path) -> None:
    """Until the cleaner's checkpoint names the compacted topic."""
    checkpoint = data / "cleaner-offset-checkpoint"
    eventually(lambda: checkpoint.exists() and "accounts 0 " in checkpoint.read_text(), 30)


class ToolFailed(AssertionError):
    """A tool ended badly; the text is what it printed."""


def run_tool(kafka: ApacheKafka, main_class: str, *arguments: str) -> str:
    """What a tool of Kafka prints, both its outputs."""
    java, *rest = kafka.java()
    done = subprocess.run(
        [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", *rest, main_class, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    printed = done.stdout + done.stderr
    if done.returncode:
        raise ToolFailed(printed)
    return printed
