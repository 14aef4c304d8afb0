"""Log directories described and replicas moved, over one raw connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from kafka.protocol.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest

from tests.support.raw_client import RawClient


class Replica(NamedTuple):
    directory: str  # its name, not its path
    is_future: bool
    offset_lag: int
    size_bytes: int


def directory_errors(client: RawClient) -> dict[str, int]:
    results = client.call(DescribeLogDirsRequest(version=4, topics=None)).results
    return {Path(result.log_dir).name: result.error_code for result in results}


def replicas(client: RawClient, topic: str, partition: int = 0) -> list[Replica]:
    """Where the replica is, and where it is going."""
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(version=4, topics=[kind(topic=topic, partitions=[partition])])
    return [
        Replica(Path(result.log_dir).name, row.is_future_key, row.offset_lag, row.partition_size)
        for result in client.call(request).results
        for each in result.topics
        for row in each.partitions
    ]


def home(client: RawClient, topic: str, partition: int = 0) -> str:
    (current,) = (row for row in replicas(client, topic, partition) if not row.is_future)
    return current.directory


def move(client: RawClient, path: Path, topic: str, partition: int = 0) -> int:
    """The error code."""
    kind: Any = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    row = kind.AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    request = AlterReplicaLogDirsRequest(version=1, dirs=[kind(path=str(path), topics=[row])])
    return int(client.call(request).results[0].partitions[0].error_code)
