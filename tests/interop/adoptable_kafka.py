"""Apache Kafka as it writes the directories of the adoption story: over KRaft or over ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.maven import jars_or_reason
from bench.peers import COMMON, ApacheKafka, BrokerProcess
from tests.interop.apache_kafka import CACHE
from tests.support.adoption_story import STATIC
from tidelog.types import Uuid

OWN = {
    **STATIC,
    "log.retention.check.interval.ms": "3600000",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
}
# So that retention and cleaning have their turn at once.
KEEPER = {
    **OWN,
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
}


def adoptable_kafka(version: str) -> ApacheKafka | str:
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, version)
    return libs if isinstance(libs, str) else ApacheKafka(libs, CACHE)


def adoptable_kafka_or_skip(version: str) -> ApacheKafka:
    found = adoptable_kafka(version)
    if isinstance(found, str):
        pytest.skip(f"Apache Kafka is not here: {found}")
    return found


class OverData:
    """A Kafka over a directory that is there already."""

    name = "kafka"

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka

    def lay_out(self, data: Path) -> None:
        assert data.exists()

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        return self._kafka.command(data, port, overrides)


class OneOfTwo:
    """A node of a KRaft cluster of two brokers, of which the first is the controller as well."""

    name = "one of two kafkas"

    def __init__(self, kafka: ApacheKafka, node_id: int, controller_port: int) -> None:
        self._kafka = kafka
        self._node_id = node_id
        self._controller = f"127.0.0.1:{controller_port}"

    def lay_out(self, data: Path) -> None:
        self._kafka.lay_out(data)
        properties = data / "meta.properties"
        rows = {"version": "1", "cluster.id": self._kafka.CLUSTER_ID, "node.id": self._node_id}
        rows["directory.id"] = str(Uuid.random())
        properties.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        is_first = self._node_id == 1
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        own = {
            "node.id": str(self._node_id),
            "process.roles": "broker,controller" if is_first else "broker",
            "controller.quorum.voters": f"1@{self._controller}",
            "listeners": f"{listeners},CONTROLLER://{self._controller}" if is_first else listeners,
        }
        return self._kafka.command(data, port, {**overrides, **own})


class OverZooKeeper:
    """A Kafka 3.9 without KRaft."""

    name = "kafka over ZooKeeper"

    def __init__(self, kafka: ApacheKafka, address: str) -> None:
        self._kafka = kafka
        self._address = address

    def lay_out(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        settings = {
            **COMMON,
            "broker.id": "1",
            "zookeeper.connect": self._address,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data),
            **overrides,
        }
        settings.pop("metadata.log.max.record.bytes.between.snapshots", None)
        properties = data.with_name(data.name + ".properties")
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java, *rest = self._kafka.java()
        return [java, *self._kafka.JVM.split(), *rest, "kafka.Kafka", str(properties)]


@contextmanager
def served(process: BrokerProcess) -> Iterator[str]:
    """Its bootstrap address; stopped cleanly, the data stays."""
    try:
        process.start()
        yield f"127.0.0.1:{process.port}"
        process.stop()
    finally:
        process.kill()
