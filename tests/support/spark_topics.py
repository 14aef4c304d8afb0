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

    def delete(self, topic: str) -> None:
        from tidelog.client.cluster import Cluster
        from tidelog.client.topics import delete_topics

        with Cluster({"bootstrap.servers": self.bootstrap}) as cluster:
            delete_topics(cluster, [topic])

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

        from tidelog.client.cluster import Cluster
        from tidelog.client.column_producer import Producer

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
        with (
            Cluster({"bootstrap.servers": self.bootstrap}) as cluster,
            Producer(cluster, topic=topic) as producer,
        ):
            producer.write(batch)

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """The offsets that a consumer group holds."""
        from tidelog.client.cluster import Cluster
        from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest

        request = OffsetFetchRequest(group_id=group_id, topics=None)
        with Cluster({"bootstrap.servers": self.bootstrap}) as cluster:
            response: Any = cluster.ask_any("offsets", lambda row: row.call(request, 7))
        return {
            (topic.name, row.partition_index): row.committed_offset
            for topic in response.topics
            for row in topic.partitions
        }
