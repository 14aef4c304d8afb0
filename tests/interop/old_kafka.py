"""Apache Kafka 0.10.2 or 2.8 and the ZooKeeper that it came with, from their jars."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.maven import OLDEST_KAFKA_VERSION, jars_or_reason
from bench.peers import free_port
from tests.interop.apache_kafka import CACHE
from tests.support.broker_process import dies_with_us
from tests.support.eventually import eventually
from tidelog.client import Admin

STOP_TIMEOUT_S = 60
LOG4J = (
    "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
    "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n"
)


@contextmanager
def running_old_kafka(directory: Path, version: str = OLDEST_KAFKA_VERSION) -> Iterator[str]:
    """Where it listens; skips the test where the jars cannot be had."""
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, version)
    if isinstance(libs, str):
        pytest.skip(f"Apache Kafka {version} is not here: {libs}")
    zookeeper, port = free_port(), free_port()
    (directory / "log4j.properties").write_text(LOG4J)
    (directory / "zookeeper.properties").write_text(
        f"dataDir={directory}/zookeeper\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
    )
    (directory / "server.properties").write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={directory}/data\n"
        f"zookeeper.connect=127.0.0.1:{zookeeper}\noffsets.topic.num.partitions=1\n"
        "offsets.topic.replication.factor=1\ndelete.topic.enable=true\n"
        "transaction.state.log.num.partitions=1\ntransaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with (
        _java(libs, directory, zookeeper, main, "zookeeper.properties"),
        _java(libs, directory, port, "kafka.Kafka", "server.properties"),
    ):
        address = f"127.0.0.1:{port}"
        eventually(lambda: _knows_itself(address))
        yield address


def _knows_itself(address: str) -> bool:
    """It listens a while before its metadata names a broker."""
    with Admin(bootstrap_servers=address) as admin:
        return bool(admin.describe_cluster().nodes)


@contextmanager
def _java(libs: Path, directory: Path, port: int, *arguments: str) -> Iterator[None]:
    """A program that listens on the port, until the end of the block."""
    command = ["java", "-Xmx256m", f"-Dlog4j.configuration=file:{directory}/log4j.properties"]
    command += ["-cp", f"{libs}/*", *arguments]
    output = directory / f"{arguments[-1]}.out"
    with output.open("wb") as file:
        process = subprocess.Popen(dies_with_us(command), cwd=directory, stdout=file, stderr=file)
    try:

        def listens() -> bool:
            assert process.poll() is None, output.read_text()[-4000:]
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        eventually(listens)
        yield
    finally:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
