"""The command-line clients: kcat, and the perf tools of Apache Kafka with one of our own.

Every tool is a process that is waited for; its processor time is taken from the kernel, so that a
figure limited by the client shows. Kafka's ConsumerPerformance joins a consumer group;
java/AssignedConsumer.java reads with assigned partitions. Settings are the tools' own.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.arena import Sample
from bench.even_topic import EvenTopic
from bench.peers import ApacheKafka

TOOL_TIMEOUT_S = 300
ASSIGNED_CONSUMER = Path(__file__).parent / "java" / "AssignedConsumer.java"
MEBIBYTES_SENT = re.compile(r"(\d+) records sent, .*\(([\d.]+) MB/sec\)")


class ToolFailed(Exception):
    """A tool ended badly, or its output lacks what was asked for."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    output: str
    seconds: float
    client_seconds: float

    @property
    def client_busy(self) -> float:
        return self.client_seconds / self.seconds


def run_tool(command: Sequence[str], *, keep_output: bool) -> ToolRun:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if keep_output else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise ToolFailed(f"{command[0]} did not end within {TOOL_TIMEOUT_S} s: {late}") from late
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise ToolFailed(f"{command[0]} ended with {done.returncode}: {done.stderr.decode()}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ToolRun((done.stdout or b"").decode(), seconds, used)


def kcat_produce(port: int, topic: str, lines: Path) -> Sample:
    """MB/s of a whole kcat run that sends each line of the file as a record."""
    command = ["kcat", "-P", "-b", f"127.0.0.1:{port}", "-t", topic, "-X", "acks=1"]
    run = run_tool([*command, "-l", str(lines)], keep_output=False)
    return Sample(lines.stat().st_size / run.seconds / 1e6, run.client_busy)


def kcat_consume(port: int, topic: EvenTopic, *, processors: int | None = None) -> Sample:
    """MB/s of a whole kcat run that reads every record; held to so many processors, if any."""
    command = ["kcat", "-C", "-q", "-b", f"127.0.0.1:{port}", "-t", topic.name]
    command += ["-o", "beginning", "-c", str(topic.records)]
    if processors is not None:
        held = sorted(os.sched_getaffinity(0))[:processors]
        command = ["taskset", "-c", ",".join(map(str, held)), *command]
    run = run_tool(command, keep_output=False)
    return Sample(topic.value_bytes / run.seconds / 1e6, run.client_busy)


@dataclass(frozen=True, slots=True)
class JavaTools:
    """Kafka's own clients, from the jars of the peer."""

    kafka: ApacheKafka

    def _java(self) -> list[str]:
        java, *rest = self.kafka.java()
        return [java, "-Xmx512m", *rest]

    def produce(
        self, topic: str, records: int, record_bytes: int, properties: Mapping[str, str]
    ) -> Sample:
        """MB/s as ProducerPerformance says it."""
        run = run_tool(
            [
                *self._java(),
                "org.apache.kafka.tools.ProducerPerformance",
                *("--topic", topic, "--num-records", str(records)),
                *("--record-size", str(record_bytes), "--throughput", "-1", "--producer-props"),
                *(f"{key}={value}" for key, value in properties.items()),
            ],
            keep_output=True,
        )
        totals = MEBIBYTES_SENT.findall(run.output)
        if not totals or int(totals[-1][0]) != records:
            raise ToolFailed(f"ProducerPerformance did not send {records} records:\n{run.output}")
        return Sample(float(totals[-1][1]) * 1.048576, run.client_busy)

    def assigned_consume(self, port: int, topic: EvenTopic, passes: int) -> Sample:
        """MB/s of the best of several passes of a KafkaConsumer with assigned partitions."""
        counts = (topic.partitions, topic.records, passes)
        arguments = [f"127.0.0.1:{port}", topic.name, *map(str, counts)]
        run = run_tool([*self._java(), str(ASSIGNED_CONSUMER), *arguments], keep_output=True)
        rates = [
            int(line.split()[1]) / float(line.split()[2]) / 1e6 for line in run.output.splitlines()
        ]
        if len(rates) != passes:
            raise ToolFailed(f"AssignedConsumer gave no rates:\n{run.output}")
        return Sample(max(rates), run.client_busy)

    def group_consume(self, port: int, topic: EvenTopic) -> Sample:
        """MB/s of ConsumerPerformance, the time of joining the group left out.

        Its line: start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, then MB/s and
        records/s of the fetching alone.
        """
        run = run_tool(
            [
                *self._java(),
                "org.apache.kafka.tools.ConsumerPerformance",
                *("--bootstrap-server", f"127.0.0.1:{port}", "--topic", topic.name),
                *("--messages", str(topic.records), "--hide-header"),
            ],
            keep_output=True,
        )
        fields = run.output.strip().splitlines()[-1].split(",")
        if len(fields) != 10 or int(fields[4]) < topic.records:
            raise ToolFailed(f"ConsumerPerformance said:\n{run.output}")
        return Sample(float(fields[8]) * 1.048576, run.client_busy)
