"""A cluster all of whose links can be cut (`cluster_network`), to be taken apart by faults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster import ClusterProcess
from tests.support.cluster_network import BrokerPorts, ClusterNetwork
from tidelog.tools.zookeeper.server import free_port


class FaultyCluster(ClusterProcess):
    def __init__(
        self, directory: Path, broker_count: int = 3, overrides: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, broker_count, overrides)
        self.ports = {number: BrokerPorts(free_port(), free_port()) for number in self.brokers}
        self.network = ClusterNetwork(self.ports, self.zookeeper.port)
        for number, broker in self.brokers.items():
            broker.overrides.update(self.ports[number].overrides())

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{ports.advertised_clients}" for ports in self.ports.values())

    def close(self) -> None:
        super().close()
        self.network.close()
