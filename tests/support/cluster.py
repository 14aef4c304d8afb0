"""A real cluster under test: ZooKeeper and brokers as processes, on free loopback ports. With
`embedded_zookeeper`, `tidelog zookeeper` stands in for ZooKeeper, and no Java is needed.

`ClusterProcess` starts the brokers, finds who leads what (by asking any broker), and compares what
the replicas hold on disk. `Writer` is a producer in a thread that remembers what was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tests.support.broker_process import BrokerProcess
from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.support.eventually import WITHIN_S, eventually
from tests.support.zookeeper import ZooKeeperProcess, require_zookeeper, start_fresh

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

SESSION_TIMEOUT_MS = 3_000
CALL_TIMEOUT_S = 60
ASK_TIMEOUT_S = 10
QUIET = {"log_level": 0}
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "3000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
}


class Reachable(Protocol):
    """A cluster, to its clients."""

    @property
    def client_keys(self) -> dict[str, Any]:
        """Of librdkafka."""


class PartitionView(NamedTuple):
    leader: int
    isr: tuple[int, ...]


class ClusterProcess:
    security: Mapping[str, str] = MappingProxyType({})  # what librdkafka needs beside the addresses

    def __init__(
        self,
        directory: Path,
        broker_count: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        embedded_zookeeper: bool = False,
    ) -> None:
        self.directory = directory
        self.zookeeper: ZooKeeperProcess | EmbeddedZooKeeperProcess
        if embedded_zookeeper:
            self.zookeeper = EmbeddedZooKeeperProcess(directory / "zookeeper").start()
        else:
            require_zookeeper()
            self.zookeeper = start_fresh(directory)
        self.brokers = {
            number: BrokerProcess(
                directory / f"broker-{number}",
                {
                    **SETTINGS,
                    "broker.id": str(number),
                    "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}",
                    **(overrides or {}),
                },
            )
            for number in range(1, broker_count + 1)
        }

    def start(self) -> ClusterProcess:
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        return self

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values() if broker.port)

    @property
    def client_keys(self) -> dict[str, Any]:
        """Of librdkafka."""
        return {"bootstrap.servers": self.bootstrap, **self.security}

    @cached_property
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({**self.client_keys, **QUIET})

    def create_topic(self, name: str, partitions: int = 1, factor: int = 3, **configs: str) -> None:
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, factor, config=config)
        for made in self.admin.create_topics([topic]).values():
            made.result(CALL_TIMEOUT_S)
        eventually(lambda: len(self.view(name)) == partitions)

    def assign_topic(self, name: str, assignment: list[list[int]], **configs: str) -> None:
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, len(assignment), replica_assignment=assignment, config=config)
        for made in self.admin.create_topics([topic]).values():
            made.result(CALL_TIMEOUT_S)

    def view(self, topic: str) -> dict[int, PartitionView]:
        """Waits for a topic that the broker which is asked has not heard of yet."""
        found: dict[int, PartitionView] = {}

        def is_told() -> bool:
            for partition in self._metadata(topic).topics[topic].partitions.values():
                found[partition.id] = PartitionView(partition.leader, tuple(partition.isrs))
            return bool(found)

        eventually(is_told)
        return found

    def _metadata(self, topic: str | None = None) -> Any:
        """Asked again where librdkafka asks a broker that was killed a moment ago: it then waits
        for that one, and no other, until the time is over.
        """
        from confluent_kafka import KafkaException

        answers: list[Any] = []

        def is_answered() -> bool:
            try:
                answers.append(self.admin.list_topics(topic, timeout=ASK_TIMEOUT_S))
            except KafkaException:
                return False
            return True

        eventually(is_answered)
        return answers[0]

    def controller_id(self) -> int:
        return int(self._metadata().controller_id)

    def live_broker_ids(self) -> set[int]:
        return set(self._metadata().brokers)

    def leader_of(self, topic: str, partition: int = 0) -> BrokerProcess:
        return self.brokers[self.view(topic)[partition].leader]

    def wait_for_full_isr(self, topics: Iterable[str], within_s: float = WITHIN_S) -> None:
        def is_full() -> bool:
            return all(
                len(partition.isr) == 3
                for topic in topics
                for partition in self.view(topic).values()
            )

        eventually(is_full, within_s=within_s)

    def stop_all(self) -> None:
        for broker in self.brokers.values():
            if broker.is_alive():
                broker.stop()

    def log_bytes(self, number: int, topic: str, partition: int = 0) -> bytes:
        """All batches of a replica, of a broker that has stopped."""
        folder = self.brokers[number].data_directory / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


class Ack(NamedTuple):
    at: float
    partition: int
    offset: int
    value: bytes


class Writer:
    """Produces numbered values, round-robin, as fast as it is let, until told to stop."""

    def __init__(self, cluster: Reachable, topic: str, partitions: int, **config: Any) -> None:
        from confluent_kafka import Producer

        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 1, **config}
        self._producer = Producer({**cluster.client_keys, **QUIET, **settings})
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acks: list[Ack] = []
        self.errors: list[KafkaError] = []

    def start(self) -> Writer:
        self._thread.start()
        eventually(lambda: len(self.acks) > 10, within_s=60)
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                self._topic,
                b"%d" % number,
                partition=number % self._partitions,
                on_delivery=self._delivered,
            )
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        self.acks.append(Ack(time.monotonic(), *place_and_value(message)))

    def longest_silence_s(self, since: float) -> float:
        """The worst partition's longest time without an ack."""
        now = time.monotonic()
        longest = 0.0
        for partition in range(self._partitions):
            times = [ack.at for ack in self.acks if ack.partition == partition and ack.at > since]
            moments = [since, *times, now]
            gaps = [later - earlier for earlier, later in pairwise(moments)]
            longest = max(longest, *gaps)
        return longest


def place_and_value(message: Message) -> tuple[int, int, bytes]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return partition, offset, value


def read_all(
    cluster: Reachable, topic: str, partitions: int, **config: Any
) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of everything up to the ends as they are now."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **cluster.client_keys,
            "group.id": f"reader-of-{topic}",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **QUIET,
            **config,
        }
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    found: list[tuple[int, int, bytes]] = []
    at_end: set[int | None] = set()
    deadline = time.monotonic() + 60
    while len(at_end) < partitions and time.monotonic() < deadline:
        for message in consumer.consume(5_000, 0.5):
            error = message.error()
            if error is None:
                found.append(place_and_value(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    consumer.close()
    assert len(at_end) == partitions
    return found


def require_nothing_lost(
    acks: Iterable[Ack], found: Iterable[tuple[int, int, bytes]], *, duplicates: bool = False
) -> None:
    """Every acked record is at its offset; no value is there twice; order is kept."""
    by_place = {(partition, offset): value for partition, offset, value in found}
    lost = [ack for ack in acks if by_place.get((ack.partition, ack.offset)) != ack.value]
    assert not lost, f"{len(lost)} acked records are not where they were acked: {lost[:5]}"
    values = [value for _, _, value in found]
    if not duplicates:
        assert len(values) == len(set(values)), "a value is there twice"
        for partition in {partition for partition, _, _ in found}:
            numbers = [int(value) for p, _, value in sorted(found) if p == partition]
            assert numbers == sorted(numbers), f"partition {partition} is out of order"
