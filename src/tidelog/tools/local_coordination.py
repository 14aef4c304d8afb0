"""The coordination of brokers on this machine that were given no ZooKeeper: one process.

`tidelog dev` and `tidelog serve --brokers` start it here and nowhere else. It keeps its files in
DIR/zookeeper, listens on the loopback interface alone, and dies with the process that started it.
"""

from __future__ import annotations

from pathlib import Path

from tidelog.tools.zookeeper_server import ServerSettings, ZooKeeperServer


def local_coordination(directory: Path, port: int) -> ZooKeeperServer:
    """Not started yet; its `address` is the brokers' zookeeper.connect."""
    return ZooKeeperServer(ServerSettings(directory / "zookeeper", port))
