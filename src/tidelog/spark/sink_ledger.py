"""The ledger of a query that writes exactly once, kept in a Kafka cluster: see batch_commit.

The marker is a record of the progress topic, whose key is the query's id. The topic is compacted,
so it holds the last marker of every query for as long as the topic lives. It is made if it is
missing. A query always uses the same one of its first PARTITIONS partitions.

    transactional id                      whose
    tidelog-spark-<query>                 the query's driver
    tidelog-spark-<query>-<slots>-<n>     a task slot (task_slots.py)
    tidelog-spark-write-<job>             a batch job, which has no marker

A batch job with a txnAppId stands for a query of that id, and its txnVersion for a batch.

A ledger lives for one commit, in whichever process Spark runs that.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.configs import ConfigResource, ConfigResourceType
from tidelog.client.admin.topics import NewTopic
from tidelog.client.admin.transactions import TransactionDescription
from tidelog.client.blocking.cluster import BlockingCluster
from tidelog.client.errors import (
    ClientError,
    NotAuthorized,
    OffsetOutOfRange,
    UnsupportedByBroker,
)
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.transaction_requests import OpenTransaction
from tidelog.config.client import AdminConfig, ConsumerConfig
from tidelog.errors import ErrorCode
from tidelog.spark.batch_commit import BatchMarker, TaskTransaction
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.admin.asking import Result
    from tidelog.config.definition import ConfigTable
    from tidelog.spark.options import SinkOptions

logger = logging.getLogger(__name__)

ID_PREFIX: Final = "tidelog-spark"
PARTITIONS: Final = 16
REPLICAS_MAX: Final = 3
FIRST_LOOK_OFFSETS: Final = 64
# The driver's transaction takes a moment. Other queries may have to wait for one that died.
DRIVER_TIMEOUT_MS: Final = 60_000
STABLE_TIMEOUT_MS: Final = DRIVER_TIMEOUT_MS + 30_000
# A task's transaction must be open for so long yet when its batch is decided.
LEFT_MIN_MS: Final = 10_000
CLOSE_TIMEOUT_S: Final = 10.0
ONGOING: Final = "Ongoing"
_SLOT: Final = re.compile(r"[0-9a-f]{16}-\d+")

ENDED_OTHERWISE: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


class ProgressTopicUnusable(RuntimeError):
    """Says what the progress topic must be like."""


def driver_id(query_id: str) -> str:
    return f"{ID_PREFIX}-{query_id}"


def task_ids_prefix(query_id: str) -> str:
    return f"{ID_PREFIX}-{query_id}-"


def is_task_of(transactional_id: str, query_id: str) -> bool:
    """One id may begin with another, where programs choose them (txnAppId)."""
    prefix = task_ids_prefix(query_id)
    slot = transactional_id.removeprefix(prefix)
    return transactional_id.startswith(prefix) and _SLOT.fullmatch(slot) is not None


def progress_partition(topic: str, query_id: str) -> TopicPartition:
    return TopicPartition(topic, zlib.crc32(query_id.encode()) % PARTITIONS)


async def write_in_one_transaction(
    producer: AsyncProducer,
    rows: Sequence[pa.RecordBatch],
    topic: str | None,
    marker: tuple[TopicPartition, bytes, bytes] | None = None,
) -> None:
    """`marker` is its partition, key and value."""
    async with producer.transaction():
        for batch in rows:
            await producer.send_arrow(batch, topic)
        if marker is not None:
            partition, key, value = marker
            await producer.send(partition.topic, value, key, partition=partition.partition)


class ClusterLedger:
    """A SinkLedger. Close it."""

    def __init__(self, options: SinkOptions, query_id: str) -> None:
        self._options = options
        self._query_id = query_id
        self._partition = progress_partition(options.progress_topic, query_id)
        timeout_ms = min(DRIVER_TIMEOUT_MS, options.transaction_timeout_ms)
        self._producer = AsyncProducer(
            {
                **options.producer_options(),
                "transactional.id": driver_id(query_id),
                "transaction.timeout.ms": str(timeout_ms),
            }
        )
        self._admin = AsyncAdmin(known_to(AdminConfig.TABLE, options.producer_options()))
        self._decided_at = 0.0

    async def close(self) -> None:
        await self._producer.close(CLOSE_TIMEOUT_S)
        await self._admin.close()

    async def fence(self) -> None:
        await self._producer.init_transactions()

    # The marker

    async def marker_or_none(self) -> BatchMarker | None:
        await self._require_topic()
        value = await asyncio.to_thread(self._last_value)
        if value is not None:
            return BatchMarker.from_bytes(value)
        await self._require_compaction()
        return None

    def _last_value(self) -> bytes | None:
        """Looks back from the end, further each time. Everything up to the end must be decided:
        transactions of other queries may be open in this partition, and are waited for."""
        key = self._query_id.encode()
        options = known_to(ConsumerConfig.TABLE, self._options.producer_options())
        options["isolation.level"] = "read_uncommitted"
        with BlockingCluster(options) as cluster:
            earliest = cluster.earliest_offsets([self._partition])[self._partition]
            end = cluster.latest_offsets([self._partition])[self._partition]
        options["isolation.level"] = "read_committed"
        options["default.api.timeout.ms"] = str(STABLE_TIMEOUT_MS)
        with BlockingCluster(options) as cluster:
            look = FIRST_LOOK_OFFSETS
            while end > earliest:
                start = max(earliest, end - look)
                value = self._last_value_in(cluster, start, end, key)
                if value is not None:
                    return value
                end, look = start, look * 8
        return None

    def _last_value_in(
        self, cluster: BlockingCluster, start: int, end: int, key: bytes
    ) -> bytes | None:
        from tidelog.client.columns.range_reader import RangeReader

        found: bytes | None = None
        try:
            for batch in RangeReader(cluster).fetch_columns(self._partition, start, end):
                rows = zip(batch.column("key"), batch.column("value"), strict=True)
                for row_key, value in rows:
                    if row_key.as_py() == key:
                        found = value.as_py()
        except OffsetOutOfRange as problem:
            raise ProgressTopicUnusable(
                f"the marker of query {self._query_id} cannot be read: a transaction of another "
                f"query is open in {self._partition} and does not end. Wait until its "
                "transaction.timeout.ms is over, or give this query a topic of its own by the "
                "option progressTopic"
            ) from problem
        return found

    async def _require_topic(self) -> None:
        name = self._partition.topic
        cluster = self._admin.cluster
        await self._admin.once(f"topic {name}", lambda _: cluster.refresh([name]))
        view = cluster.metadata.topics.get(name)
        if view is None or not view.exists:
            await self._create_topic()
        elif len(view.partitions) < PARTITIONS:
            raise self._unusable(f"it has {len(view.partitions)} partitions")

    async def _create_topic(self) -> None:
        name = self._partition.topic
        replicas = min(REPLICAS_MAX, len(await self._admin.broker_ids()))
        configs = {"cleanup.policy": "compact"}
        if replicas == REPLICAS_MAX:
            configs["min.insync.replicas"] = str(REPLICAS_MAX - 1)
        wanted = NewTopic(name, PARTITIONS, replicas, configs=configs)
        result = (await self._admin.create_topics([wanted]))[name]
        if result.error is not None and result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise self._unusable(f"it cannot be made ({result.error})") from result.error

    async def _require_compaction(self) -> None:
        """Before the first marker, since a topic that deletes old records would forget it."""
        resource = ConfigResource(ConfigResourceType.TOPIC, self._partition.topic)
        found = (await self._admin.describe_configs({resource: ["cleanup.policy"]}))[resource]
        if isinstance(found.error, NotAuthorized):
            logger.warning("%s: whether it is compacted is not known, as it must be", found.error)
            return
        policy = found.get()["cleanup.policy"].value
        if policy != "compact":
            raise self._unusable(f"its cleanup.policy is {policy}")

    def _unusable(self, problem: str) -> ProgressTopicUnusable:
        return ProgressTopicUnusable(
            f"topic {self._partition.topic} (option progressTopic) cannot hold the progress of "
            f"queries that write exactly once: {problem}. It must have {PARTITIONS} partitions or "
            "more and be compacted: kafka-topics --create --topic "
            f"{self._partition.topic} --partitions {PARTITIONS} --config cleanup.policy=compact"
        )

    async def decide(self, rows: Sequence[pa.RecordBatch], marker: BatchMarker) -> None:
        self._decided_at = time.monotonic()
        record = self._partition, self._query_id.encode(), marker.to_bytes()
        await write_in_one_transaction(self._producer, rows, self._options.topic, record)

    # Transactions of tasks

    async def timed_out(self, transactions: Sequence[TaskTransaction]) -> list[TaskTransaction]:
        if not transactions:
            return []
        described = await self._admin.describe_transactions(
            each.handed.transactional_id for each in transactions
        )
        now_ms = time.time_ns() // 1_000_000
        return [
            each
            for each in transactions
            if not is_open(each.handed, described[each.handed.transactional_id], now_ms)
        ]

    async def end(
        self, transactions: Sequence[TaskTransaction], *, committed: bool
    ) -> list[TaskTransaction]:
        ended = await self._admin.end_transactions(
            (each.handed for each in transactions), committed=committed
        )
        ended_otherwise = []
        for each in transactions:
            error = ended[each.handed.transactional_id].error
            if error is None:
                continue
            if error.code not in ENDED_OTHERWISE:
                raise error
            ended_otherwise.append(each)
        return ended_otherwise

    async def abort_leftovers(self, kept: Collection[TaskTransaction]) -> None:
        """Those that cannot be found now time out by themselves."""
        try:
            await self._abort_leftovers(kept)
        except UnsupportedByBroker as problem:
            logger.debug("transactions left by attempts of tasks time out: %s", problem)
        except ClientError as problem:
            logger.warning("transactions left by attempts of tasks time out: %s", problem)

    async def _abort_leftovers(self, kept: Collection[TaskTransaction]) -> None:
        """A slot may be used again while this works. So first it is seen which transaction each has
        open, and then that those are old: a later one of the same slot has another epoch."""
        names = {each.handed.transactional_id for each in kept}
        left = await self._open_ids(0) - names
        if not left:
            return
        described = await self._admin.describe_transactions(left)
        age_ms = round((time.monotonic() - self._decided_at) * 1000)
        transactions = self._producer.transactions
        is_v2 = transactions is not None and transactions.is_v2
        old = [
            OpenTransaction(name, found.producer_id, found.producer_epoch, is_v2)
            for name in sorted(left & await self._open_ids(age_ms))
            if (found := described[name].value) is not None
        ]
        logger.info("aborting %d transactions left by attempts of tasks", len(old))
        await self._admin.end_transactions(old, committed=False)

    async def _open_ids(self, duration_ms: int) -> set[str]:
        listed = await self._admin.list_transactions(states=[ONGOING], duration_ms=duration_ms)
        names = (row.transactional_id for row in listed)
        return {name for name in names if is_task_of(name, self._query_id)}


def is_open(
    handed: OpenTransaction, described: Result[TransactionDescription], now_ms: int
) -> bool:
    """And will be for a while. Clocks may differ; then it is only less sure that it will be."""
    if described.error is not None:
        if described.error.code in ENDED_OTHERWISE:
            return False
        raise described.error
    found = described.get()
    owner = found.producer_id, found.producer_epoch
    if found.state != ONGOING or owner != (handed.producer_id, handed.producer_epoch):
        return False
    left_ms = found.start_time_ms + found.timeout_ms - now_ms
    return left_ms >= min(LEFT_MIN_MS, found.timeout_ms // 4)


def known_to(table: ConfigTable, options: Mapping[str, str]) -> dict[str, object]:
    """Those options of a producer that another kind of client has too."""
    return {name: text for name, text in options.items() if table.get(name) is not None}
