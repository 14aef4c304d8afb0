"""A cluster all of whose links can be cut (`cluster_network`), to be taken apart by faults."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from kazoo.client import KazooClient

from tests.support.cluster import ClusterProcess
from tests.support.cluster_network import BrokerPorts, ClusterNetwork
from tests.support.eventually import WITHIN_S, eventually
from tests.support.zookeeper import zookeeper_client
from tidelog.controller import znodes
from tidelog.tools.free_ports import free_port


class FaultyCluster(ClusterProcess):
    def __init__(
        self,
        directory: Path,
        broker_count: int = 3,
        overrides: Mapping[str, str] | None = None,
        *,
        embedded_zookeeper: bool = False,
    ) -> None:
        super().__init__(directory, broker_count, overrides, embedded_zookeeper=embedded_zookeeper)
        self.ports = {number: BrokerPorts(free_port(), free_port()) for number in self.brokers}
        self.network = ClusterNetwork(self.ports, self.zookeeper.port)
        for number, broker in self.brokers.items():
            broker.overrides.update(self.ports[number].overrides())

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{ports.advertised_clients}" for ports in self.ports.values())

    def wait_for_full_isr(self, topics: Iterable[str], within_s: float = WITHIN_S) -> None:
        """As ZooKeeper has it and as clients are told: a broker that was cut off may not have heard
        yet that it is missed.
        """
        names = tuple(topics)
        began = time.monotonic()
        with zookeeper_client(self.zookeeper.address) as zookeeper:
            eventually(lambda: all(map(partial(has_full_isrs, zookeeper), names)), within_s)
        super().wait_for_full_isr(names, max(within_s - (time.monotonic() - began), 1.0))

    def close(self) -> None:
        super().close()
        self.network.close()


def has_full_isrs(zookeeper: KazooClient, topic: str) -> bool:
    def isr(partition: int) -> set[int]:
        data, _ = zookeeper.get(znodes.state_path(topic, partition))
        return set(znodes.decode_state(data).isr)

    data, _ = zookeeper.get(znodes.topic_path(topic))
    replicas = znodes.decode_topic(data).partitions
    return all(isr(partition) == set(assigned) for partition, assigned in replicas.items())
