"""The brokers that are compared: a process each, on the same disk, on loopback.

A Peer knows how to lay out a fresh data directory and which command serves it; a BrokerProcess is
one such process with its pid, port, memory and end. Kafka runs in KRaft mode as a single combined
node with a 1 GB heap and the JVM options of its own start script.

    lay_out  -> data directory exists, formatted, empty
    spawn    -> exec; nothing awaited (the start measure needs that)
    start    -> spawn, then wait until the broker lists itself in Metadata
    kill     -> SIGKILL; the data stays
    stop     -> SIGTERM and wait; the data stays
    discard  -> kill, data removed
"""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from bench import wire
from bench.raw_client import RawClient
from tidelog.tools.free_ports import free_port

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
# what both peers are given: one node, quick removal of deleted topics, no retention
COMMON = {
    "auto.create.topics.enable": "true",
    "log.segment.delete.delay.ms": "500",
    "log.retention.ms": "-1",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


# Given as an override, the port of a second listener, with TLS or with a login.
TLS_PORT, SASL_PORT = "bench.tls.port", "bench.sasl.port"


def with_second_listener(settings: dict[str, str]) -> dict[str, str]:
    for key, protocol in ((TLS_PORT, "SSL"), (SASL_PORT, "SASL_PLAINTEXT")):
        port = settings.pop(key, None)
        if port is not None:
            settings["listeners"] += f",{protocol}://127.0.0.1:{port}"
            settings["listener.security.protocol.map"] = (
                f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocol}:{protocol}"
            )
    return settings


class BrokerFailed(Exception):
    """A broker ended or never became ready; the text holds the end of what it wrote."""


class Peer(Protocol):
    """A kind of broker."""

    @property
    def name(self) -> str: ...

    def lay_out(self, data: Path) -> None:
        """Makes an empty, formatted data directory."""

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        """What to exec to serve that directory on that port; may write a file beside the data."""


class Tidelog:
    """The broker of this repository, from the virtual environment the benchmark runs in."""

    name = "tidelog"

    def __init__(self, executable: Path) -> None:
        self._executable = executable

    def lay_out(self, data: Path) -> None:
        data.mkdir(parents=True)

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        settings = {
            **COMMON,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data),
            **overrides,
        }
        settings = with_second_listener(settings)
        command = [str(self._executable), "serve"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        return command


class ApacheKafka:
    """Apache Kafka from a folder of jars; formats one directory and copies it from then on."""

    name = "kafka"
    JVM = (
        "-Xms1g -Xmx1g -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 "
        "-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent "
        "-Djava.awt.headless=true"
    )
    LOG4J = (
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
    )
    CLUSTER_ID = "dGlkZWxvZy1iZW5jaG1hcg"

    def __init__(self, libs: Path, cache: Path) -> None:
        self.libs = libs
        self._formatted = cache / f"{libs.parent.name}-formatted"
        self.log4j = cache / "log4j.properties"
        self.log4j.write_text(self.LOG4J)

    def lay_out(self, data: Path) -> None:
        if not self._formatted.exists():
            self._format(self._formatted)
        shutil.copytree(self._formatted, data)

    def _format(self, target: Path) -> None:
        scratch = target.with_name(target.name + ".new")
        shutil.rmtree(scratch, ignore_errors=True)
        properties = target.with_name("kafka-format.properties")
        properties.write_text(self._properties(scratch, 9092, 9093, {}))
        tool = ["kafka.tools.StorageTool", "format", "-t", self.CLUSTER_ID, "-c", str(properties)]
        done = subprocess.run(
            [*self.java(), *tool],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise BrokerFailed(f"StorageTool: {done.stdout}{done.stderr}")
        scratch.rename(target)

    def java(self) -> list[str]:
        return ["java", f"-Dlog4j.configuration=file:{self.log4j}", "-cp", f"{self.libs}/*"]

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        properties = data.with_name(data.name + ".properties")
        properties.write_text(self._properties(data, port, free_port(), overrides))
        java, *rest = self.java()
        return [java, *self.JVM.split(), *rest, "kafka.Kafka", str(properties)]

    def _properties(
        self, data: Path, port: int, controller_port: int, overrides: Mapping[str, str]
    ) -> str:
        settings = {
            **COMMON,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "log.dirs": str(data),
            **overrides,
        }
        settings = with_second_listener(settings)
        return "".join(f"{key}={value}\n" for key, value in settings.items())


class BrokerProcess:
    """One broker of a peer over one data directory; may be started again after an end."""

    def __init__(self, peer: Peer, data: Path, overrides: Mapping[str, str]) -> None:
        self.peer = peer
        self.data = data
        self.port = free_port()
        self._overrides = overrides
        self._output = data.with_name(data.name + ".out")
        self._process: subprocess.Popen[bytes] | None = None
        peer.lay_out(data)

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> float:
        """Executes the broker and waits for nothing; gives the time of the exec."""
        command = self.peer.command(self.data, self.port, self._overrides)
        with self._output.open("ab") as output:
            started = time.perf_counter()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        return started

    def start(self) -> None:
        self.spawn()
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not self._lists_itself():
            self.check_alive()
            if time.monotonic() > give_up_at:
                raise BrokerFailed(f"{self.name} is not ready after {START_TIMEOUT_S} s")
            time.sleep(0.02)
        self.check_alive()

    def _lists_itself(self) -> bool:
        try:
            with RawClient(self.port, timeout_s=10) as client:
                answer = client.ask(wire.metadata_request([], auto_create=False))
        except OSError:
            return False
        (brokers,) = struct.unpack_from(">i", answer, 12)
        return bool(brokers)

    def check_alive(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            raise BrokerFailed(f"{self.name} ended with {code}:\n{self.last_output()}")

    def last_output(self) -> str:
        return self._output.read_bytes()[-2000:].decode(errors="replace")

    def connect(self) -> RawClient:
        return RawClient(self.port)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            self.kill()
            raise BrokerFailed(f"{self.name} did not stop in {STOP_TIMEOUT_S} s") from late

    def discard(self) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        self._output.unlink(missing_ok=True)
        self.data.with_name(self.data.name + ".properties").unlink(missing_ok=True)

    def resident_bytes(self) -> int:
        """VmRSS of the broker and of its children."""
        return resident_bytes_of(self.pid)

    def cpu_seconds(self) -> float:
        """Processor time used so far by the broker and its children."""
        return cpu_seconds_of(self.pid)


def resident_bytes_of(pid: int) -> int:
    """With its children, as of all here."""
    return sum(_resident_bytes(each) for each in _family(pid))


def cpu_seconds_of(pid: int) -> float:
    return sum(_cpu_seconds(each) for each in _family(pid))


def _family(pid: int) -> list[int]:
    family = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            family += _family(int(child))
    return family


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu_seconds(pid: int) -> float:
    """User and system time of all threads, those that have ended included.

    The processor clock of another process, as clock_getcpuclockid(3) names it: it counts
    nanoseconds where /proc counts ticks of 10 ms.
    """
    return time.clock_gettime(~pid << 3 | 2)
