"""Three brokers of a peer over a ZooKeeper of their own: processes on loopback, on the same disk.

Both peers get the same coordination (`tidelog zookeeper`) and the same settings: replication factor
3, min.insync.replicas 2. Kafka runs in ZooKeeper mode with a 1 GB heap for each broker. Memory and
processor time are those of the three brokers together, coordination and clients left out.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.peers import COMMON, START_TIMEOUT_S, ApacheKafka, BrokerFailed, BrokerProcess, Peer
from bench.wire import BadAnswer
from tidelog.tools.free_ports import free_port

BROKERS = 3
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
}
ADMIN_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


class KafkaOverZooKeeper:
    """Apache Kafka as a member of a cluster over ZooKeeper."""

    name = "kafka"

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka

    def lay_out(self, data: Path) -> None:
        data.mkdir(parents=True)

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        settings = {
            **COMMON,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data),
            **overrides,
        }
        properties = data.with_name(data.name + ".properties")
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java, *rest = self._kafka.java()
        return [java, *self._kafka.JVM.split(), *rest, "kafka.Kafka", str(properties)]


def member_of(peer: Peer) -> Peer:
    """The peer as it runs in a cluster."""
    return KafkaOverZooKeeper(peer) if isinstance(peer, ApacheKafka) else peer


class ZooKeeper:
    """`tidelog zookeeper` on a free port, or with `--java` the real one; ready after `start`."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self._options = options
        self.port = free_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        executable = Path(sys.executable).with_name("tidelog")
        self._process = subprocess.Popen(
            [
                str(executable),
                *("zookeeper", "--port", str(self.port), "--data", str(self.data)),
                *self._options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if "ready" not in said:
            raise BrokerFailed(f"no ZooKeeper: {said}{self._process.stdout.read()}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=STOP_TIMEOUT_S)


class ClusterProcess:
    """Started once, discarded with all its data."""

    def __init__(self, peer: Peer, data: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.name = peer.name
        self.data = data
        self._serials = itertools.count()
        data.mkdir(parents=True)
        self.zookeeper = ZooKeeper(data / "zookeeper")
        settings = {
            **SETTINGS,
            "zookeeper.connect": self.zookeeper.address,
            **(overrides or {}),
        }
        self.brokers = {
            number: BrokerProcess(
                member_of(peer), data / f"broker-{number}", {**settings, "broker.id": str(number)}
            )
            for number in range(1, BROKERS + 1)
        }

    def start(self) -> None:
        self.zookeeper.start()
        for broker in self.brokers.values():
            broker.start()
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while len(self.admin.list_topics(timeout=ADMIN_TIMEOUT_S).brokers) < BROKERS:
            if time.monotonic() > give_up_at:
                raise BrokerFailed(f"{self.name}: not all brokers have joined")
            time.sleep(0.05)

    def discard(self) -> None:
        for broker in self.brokers.values():
            broker.discard()
        self.zookeeper.stop()
        shutil.rmtree(self.data, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    @cached_property
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, partitions: int) -> str:
        """A new name: one that was deleted may be on its way out still.

        Leaders in turn: partition 0 on broker 1, and so on; all replicas in sync.
        """
        from confluent_kafka.admin import NewTopic

        topic = f"bench-cluster-{next(self._serials)}"
        numbers = list(self.brokers)
        assignment = [
            [numbers[(index + place) % BROKERS] for place in range(BROKERS)]
            for index in range(partitions)
        ]
        new = NewTopic(topic, partitions, replica_assignment=assignment)
        self.admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S)[topic].result()
        give_up_at = time.monotonic() + ADMIN_TIMEOUT_S
        while not self._is_led_as_assigned(topic, assignment):
            if time.monotonic() > give_up_at:
                raise BadAnswer(f"{topic} is not led and in sync as assigned")
            time.sleep(0.05)
        return topic

    def _is_led_as_assigned(self, topic: str, assignment: list[list[int]]) -> bool:
        found = self.admin.list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic].partitions
        return len(found) == len(assignment) and all(
            found[index].leader == replicas[0] and len(found[index].isrs) == BROKERS
            for index, replicas in enumerate(assignment)
        )

    def led_by(self, number: int, partitions: int) -> list[int]:
        """The partitions of a topic of `create_topic` that the broker leads."""
        return list(range(list(self.brokers).index(number), partitions, BROKERS))

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic], operation_timeout=ADMIN_TIMEOUT_S)[topic].result()

    def resident_bytes(self) -> int:
        return sum(broker.resident_bytes() for broker in self.brokers.values())

    def cpu_seconds(self) -> float:
        return sum(broker.cpu_seconds() for broker in self.brokers.values())

    def last_output(self) -> str:
        return "\n".join(broker.last_output() for broker in self.brokers.values())
