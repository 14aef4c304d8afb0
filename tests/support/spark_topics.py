"""Topics for Spark tests: made, filled and read by tidelog's own client, not by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.raw_admin import delete_before
from tests.support.raw_client import RawClient, create_topic

BASE_TIMESTAMP_MS = 1_700_000_000_000


class SparkTopics:
    """The topics of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        with RawClient(self.bootstrap) as client:
            create_topic(client, topic, partitions, named)

    def alter(self, topic: str, **configs: str) -> None:
        from tidelog.client import Admin, AlterConfig, ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        changes = [AlterConfig(name.replace("_", "."), value) for name, value in configs.items()]
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.incremental_alter_configs({resource: changes})[resource].get()

    def delete(self, topic: str) -> None:
        from tidelog.client import Admin

        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.delete_topics([topic])[topic].get()

    def add_partitions(self, topic: str, count: int) -> None:
        from kafka.protocol.admin import CreatePartitionsRequest

        kind = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            version=1,
            topics=[kind(name=topic, count=count, assignments=None)],
            timeout_ms=20_000,
            validate_only=False,
        )
        with RawClient(self.bootstrap) as client:
            assert client.call(request).results[0].error_code == 0

    def delete_before(self, topic: str, offset: int) -> None:
        with RawClient(self.bootstrap) as client:
            assert delete_before(client, topic, offset) == (0, offset)

    def fill(self, topic: str, numbers: Sequence[int], partitions: int = 1, **columns: Any) -> None:
        """Rows with key "k<n>", value "<n>", partition n modulo `partitions` and a timestamp of n
        seconds after BASE_TIMESTAMP_MS."""
        import pyarrow as pa

        from tidelog.client import Producer

        times = [(BASE_TIMESTAMP_MS + 1000 * number) * 1000 for number in numbers]
        batch = pa.RecordBatch.from_pydict(
            {
                "key": [b"k%d" % number for number in numbers],
                "value": [b"%d" % number for number in numbers],
                "partition": pa.array([number % partitions for number in numbers], pa.int32()),
                "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
                **columns,
            }
        )
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            producer.send_arrow(batch, topic).result()

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """The offsets that a consumer group holds."""
        from tidelog.client import Admin

        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            found = admin.list_group_offsets(group_id)
        return {
            (key.topic, key.partition): row.offset for key, row in found.items() if row is not None
        }
