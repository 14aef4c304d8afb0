"""The batch that holds an offset, fetched from the partition's leader, and how its transaction
ended.

The fetch is read_uncommitted for the batch itself, and read_committed for the list of aborted
transactions: the leader lists those that overlap what it answers, by producer and first offset. The
marker that ended a transaction is looked for in at most SCAN_BYTES_MAX bytes after the record.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.client.admin.asking import Asking, Found, problem_of
from tidelog.client.columns.batch_selection import parts_of_batch
from tidelog.client.errors import ClientError
from tidelog.client.network.versions import LAST_BY_NAME
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.record import kernel
from tidelog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.record.control import ControlType, read_marker
from tidelog.tools.explain.record import Marker
from tidelog.types import TopicPartition

FETCH_BYTES: Final = 1 << 20
SCAN_BYTES_MAX: Final = 16 << 20
BATCHES_MAX: Final = 10_000
NO_EPOCH: Final = -1
CONSUMER_REPLICA_ID: Final = -1


class FetchedBatch(NamedTuple):
    is_there: bool
    next_offset: int | None  # the first record after the offset, where there is none at it
    is_control: bool = False
    is_transactional: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = NO_EPOCH
    is_aborted: bool | None = None
    marker: Marker | None = None


class PartitionReading(Asking):
    """Calls that explanations need beside those of an admin client."""

    async def log_end_offset(self, partition: TopicPartition, leader_epoch: int) -> int | None:
        """The end of the leader's own epoch, which is the end of its log."""

        async def ask(node_id: int, _: list[TopicPartition]) -> Found[TopicPartition, int]:
            row = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=leader_epoch)
            request = OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID,
                topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[row])],
            )
            response = await self.of_broker(node_id, request, OffsetForLeaderEpochResponse)
            answer = response.topics[0].partitions[0]
            return {
                partition: problem_of(f"end of {partition}", answer.error_code) or answer.end_offset
            }

        async def step(some: list[TopicPartition], _: int) -> Found[TopicPartition, int]:
            return await self.of_leaders(some, ask)

        found = (await self.each("end of the log", [partition], step, None))[partition].get()
        return found if found >= 0 else None

    async def batch_at(self, partition: TopicPartition, offset: int) -> FetchedBatch:
        """`offset` is below the high watermark. Raises ClientError."""
        data = await self._fetch(partition, offset, committed=False)
        records = memoryview(data.records or b"")
        rows = _batches(records)
        if not rows:
            return FetchedBatch(is_there=False, next_offset=None)
        row = next((each for each in rows if each.last_offset >= offset), None)
        offsets = [] if row is None else _offsets(partition, records, row)
        if row is None or offset not in offsets:
            later = [each for each in offsets if each > offset]
            after = [] if row is None else rows[rows.index(row) + 1 :]
            first = later[0] if later else after[0].base_offset if after else None
            return FetchedBatch(is_there=False, next_offset=first)
        is_v2 = row.magic >= 2
        found = FetchedBatch(
            True,
            None,
            is_v2 and bool(row.attributes & CONTROL_BIT),
            is_v2 and bool(row.attributes & TRANSACTIONAL_BIT),
            row.producer_id,
            row.producer_epoch,
            row.max_timestamp,
            row.leader_epoch,
        )
        if found.is_control:
            return found._replace(marker=_marker(records, row))
        if not found.is_transactional:
            return found
        return await self._with_outcome(partition, offset, found)

    async def _with_outcome(
        self, partition: TopicPartition, offset: int, found: FetchedBatch
    ) -> FetchedBatch:
        data = await self._fetch(partition, offset, committed=True)
        if data.last_stable_offset >= 0 and offset >= data.last_stable_offset:
            return found  # still open, or behind an open one
        aborted = any(
            each.producer_id == found.producer_id and each.first_offset <= offset
            for each in data.aborted_transactions or ()
        )
        marker = await self._marker_after(partition, offset, found.producer_id)
        return found._replace(is_aborted=aborted, marker=marker)

    async def _marker_after(
        self, partition: TopicPartition, offset: int, producer_id: int
    ) -> Marker | None:
        read = 0
        while read < SCAN_BYTES_MAX:
            data = await self._fetch(partition, offset, committed=False)
            records = memoryview(data.records or b"")
            rows = _batches(records)
            for row in rows:
                is_control = row.magic >= 2 and row.attributes & CONTROL_BIT
                if is_control and row.producer_id == producer_id and row.base_offset > offset:
                    return _marker(records, row)
            if not rows or rows[-1].last_offset < offset:
                return None
            read += len(records)
            offset = rows[-1].last_offset + 1
            if offset >= data.high_watermark:
                return None
        return None

    async def _fetch(
        self, partition: TopicPartition, offset: int, *, committed: bool
    ) -> PartitionData:
        async def ask(
            node_id: int, _: list[TopicPartition]
        ) -> Found[TopicPartition, PartitionData]:
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=FETCH_BYTES,
                isolation_level=1 if committed else 0,
                topics=[
                    FetchTopic(
                        topic=partition.topic,
                        partitions=[
                            FetchPartition(
                                partition=partition.partition,
                                fetch_offset=offset,
                                partition_max_bytes=FETCH_BYTES,
                            )
                        ],
                    )
                ],
            )
            response = await self.of_broker(
                node_id, request, FetchResponse, at_most=LAST_BY_NAME[ApiKey.FETCH]
            )
            what = f"fetch of {partition} from offset {offset}"
            problem = problem_of(what, response.error_code)
            rows = [row for topic in response.responses for row in topic.partitions]
            if problem is None and len(rows) != 1:
                problem = ClientError(f"{what}: the answer has {len(rows)} partitions")
            return {partition: problem or problem_of(what, rows[0].error_code) or rows[0]}

        async def step(some: list[TopicPartition], _: int) -> Found[TopicPartition, PartitionData]:
            return await self.of_leaders(some, ask)

        return (await self.each("fetch", [partition], step, None))[partition].get()


def _batches(records: memoryview) -> list[kernel.BatchRow]:
    _, _, rows = kernel.list_batches(records, 0, len(records), BATCHES_MAX)
    return rows


def _offsets(partition: TopicPartition, records: memoryview, row: kernel.BatchRow) -> list[int]:
    """Of the records in a batch; compaction leaves gaps."""
    found: list[int] = []
    for part in parts_of_batch(partition, records, row, check_crcs=False):
        columns = kernel.records_to_columns([part.records])
        found += memoryview(columns.offsets).cast("q").tolist()
    return found


def _marker(records: memoryview, row: kernel.BatchRow) -> Marker | None:
    found = read_marker(records[row.position : row.position + row.size])
    if found is None:
        return None
    return Marker(row.base_offset, row.max_timestamp, found.control_type == ControlType.COMMIT)
