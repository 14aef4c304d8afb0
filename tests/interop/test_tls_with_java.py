"""Kafka's own tools, with Java's TLS, against a TLS listener; and tidelog's client against Kafka's.

Certificates are files that both read: PEM, and PKCS12 as keytool reads it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, jars_or_reason
from bench.peers import TLS_PORT
from tests.interop.apache_kafka import kafka_or_skip, running
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import PASSWORD, Authority
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.tools.free_ports import free_port

CACHE = Path(__file__).resolve().parents[2] / ".bench"
TOOL_TIMEOUT_S = 240


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def broker(authority: Authority, tmp_path: Path) -> Iterator[BrokerProcess]:
    overrides = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        **authority.broker_keys("required"),
    }
    with BrokerProcess(tmp_path / "broker", overrides) as process:
        yield process


@pytest.fixture
def libs() -> Path:
    CACHE.mkdir(exist_ok=True)
    found = jars_or_reason(CACHE, KAFKA_VERSION)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def client_properties(path: Path, keys: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return str(path)


def java(libs: Path, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{libs}/*", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_kafkas_tools_work_with_certificates(
    kind: str, broker: BrokerProcess, authority: Authority, libs: Path, tmp_path: Path
) -> None:
    keys = authority.client_keys(authority.issue("alice", hosts=()))
    if kind == "PKCS12":
        keys |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(authority.issue_pkcs12("bob", hosts=())),
            "ssl.keystore.password": PASSWORD,
        }
    config = client_properties(tmp_path / "client.properties", keys)
    where = ("--bootstrap-server", broker.bootstrap)
    java(
        *(libs, "org.apache.kafka.tools.TopicCommand", *where, "--command-config", config),
        *("--create", "--topic", "t", "--partitions", "1"),
    )
    java(
        *(libs, "kafka.tools.ConsoleProducer", *where, "--producer.config", config),
        *("--topic", "t"),
        stdin="one\ntwo\n",
    )
    read = java(
        *(libs, "org.apache.kafka.tools.consumer.ConsoleConsumer", *where),
        *("--consumer.config", config, "--topic", "t", "--from-beginning", "--max-messages", "2"),
    )
    assert read.splitlines() == ["one", "two"]


def test_tidelogs_client_speaks_tls_with_kafka(authority: Authority, tmp_path: Path) -> None:
    kafka = kafka_or_skip()
    port = free_port()
    overrides = {TLS_PORT: str(port), **authority.broker_keys("required")}
    keys = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        **authority.client_keys(authority.issue("alice", hosts=())),
    }
    values = [b"small", b"x" * 900_000]
    with running(kafka, tmp_path / "kafka", overrides):
        with Admin(keys) as admin:
            (made,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
            assert made.error is None
        with Producer(keys) as producer:
            for delivery in [producer.send("t", value, partition=0) for value in values]:
                delivery.result(TOOL_TIMEOUT_S)
        found: list[bytes | None] = []
        with Consumer(keys) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 0)
            give_up_at = time.monotonic() + TOOL_TIMEOUT_S
            while len(found) < len(values) and time.monotonic() < give_up_at:
                found += [record.value for record in consumer.poll(0.5)]
    assert found == values
