"""`AsyncAdmin`: everything that Kafka's Admin can ask, on asyncio.

    async with AsyncAdmin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
        await admin.create_topics([NewTopic("greetings", num_partitions=3)])

Calls about several things return a `Result` for each of them; calls about one thing return it or
raise. `timeout` is in seconds, default.api.timeout.ms unless given, retries included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from tidelog.client.admin.acls import AclCalls
from tidelog.client.admin.brokers import BrokerCalls
from tidelog.client.admin.configs import ConfigCalls
from tidelog.client.admin.credentials import CredentialCalls
from tidelog.client.admin.groups import GroupCalls
from tidelog.client.admin.offsets import OffsetCalls
from tidelog.client.admin.partitions import PartitionCalls
from tidelog.client.admin.quotas import QuotaCalls
from tidelog.client.admin.topics import TopicCalls
from tidelog.client.admin.transactions import TransactionCalls
from tidelog.client.network.cluster import Cluster
from tidelog.config.client import AdminConfig


class AsyncAdmin(
    TopicCalls,
    ConfigCalls,
    OffsetCalls,
    GroupCalls,
    TransactionCalls,
    PartitionCalls,
    BrokerCalls,
    QuotaCalls,
    AclCalls,
    CredentialCalls,
):
    """Of one event loop. Close it, or use it in an `async with`."""

    def __init__(
        self,
        config: Mapping[str, object] | AdminConfig | None = None,
        **keywords: object,
    ) -> None:
        """Kafka's keys in a mapping, or as keywords with underscores for their dots."""
        checked = AdminConfig.of(config, keywords)
        super().__init__(checked, Cluster(checked))

    async def close(self) -> None:
        await self.cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
