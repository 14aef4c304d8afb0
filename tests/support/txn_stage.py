"""A broker without sockets, and producers with transactions on it.

`crash_points` keeps a copy of the log directories before and after each append, as a kill at that
moment would leave them (what was written is in the page cache, nothing is closed).
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from inspect import isawaitable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.handlers import HandlerStage, handler_stage
from tests.support.stored_columns import read_columns
from tidelog.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from tidelog.errors import ErrorCode
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.record.builder import batch_of

TOPIC = "t"
PARTITIONS = 2
SMALL = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "log_index_size_max_bytes": "4096",
}


class TxnStage:
    def __init__(self, stage: HandlerStage) -> None:
        self.stage = stage
        self.broker = stage.broker
        self.clock = stage.clock

    async def ask(self, handler: ModuleType, version: int, request: Any) -> Any:
        answer = handler.handle(self.stage.context(version), request)
        return await answer if isawaitable(answer) else answer

    async def init(
        self, transactional_id: str | None = "x", *, version: int = 4, **fields: Any
    ) -> InitProducerIdResponse:
        fields.setdefault("transaction_timeout_ms", 60_000)
        request = InitProducerIdRequest(transactional_id=transactional_id, **fields)
        answer = await self.ask(init_producer_id, version, request)
        assert isinstance(answer, InitProducerIdResponse)
        return answer

    async def producer(self, transactional_id: str = "x", **fields: Any) -> Producer:
        answer = await self.init(transactional_id, **fields)
        assert answer.error_code == 0, ErrorCode.of(answer.error_code)
        return Producer(self, transactional_id, answer.producer_id, answer.producer_epoch)

    def state(self, transactional_id: str = "x") -> str:
        transaction = self.broker.transactions.transaction_or_none(transactional_id)
        return "" if transaction is None else transaction.state.text

    def log(self, index: int, topic: str = TOPIC) -> PartitionLog:
        return self.stage.partition(topic, index).log

    def committed(self, index: int) -> list[bytes]:
        """What a read_committed reader gets from the start."""
        partition = self.stage.partition(TOPIC, index)
        row = partition.read(0, 1 << 20, min_one_batch=True, read_committed=True)
        data = row.records if isinstance(row.records, bytes) else row.records.read()
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        return list(_visible(memoryview(data), aborted))

    async def offset(self, group_id: str = "g", *, require_stable: bool = False) -> int:
        """Of partition 0; the negative error code where there is an error."""
        topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=group_id, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        answer = await self.ask(offset_fetch, 8, request)
        row = answer.groups[0].topics[0].partitions[0]
        assert isinstance(row.committed_offset, int)
        return -row.error_code if row.error_code else row.committed_offset


class Producer:
    """One instance of a producer: what it believes to be its id, epoch and sequences."""

    def __init__(
        self, stage: TxnStage, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> None:
        self._stage = stage
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences = [0] * PARTITIONS

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    async def add(self, *indexes: int, version: int = 3, topic: str = TOPIC) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        answer = await self._stage.ask(add_partitions_to_txn, version, request)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        return [row.partition_error_code for row in rows]

    async def send(self, value: bytes, index: int = 0, *, version: int = 9) -> int:
        batch = batch_of(
            [(None, value, (), self._stage.clock.time_ms())],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequences[index],
            is_transactional=True,
        )
        row = PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[row])],
        )
        answer = await self._stage.ask(produce, version, request)
        code = answer.responses[0].partition_responses[0].error_code
        self.sequences[index] += code == 0
        return int(code)

    async def add_offsets(self, group_id: str = "g", *, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        answer = await self._stage.ask(add_offsets_to_txn, version, request)
        return int(answer.error_code)

    async def commit_offset(
        self, offset: int, *, group_id: str = "g", version: int = 3, **fields: Any
    ) -> int:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
            **fields,
        )
        answer = await self._stage.ask(txn_offset_commit, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    async def end_answer(self, *, committed: bool, version: int = 3) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        answer = await self._stage.ask(end_txn, version, request)
        assert isinstance(answer, EndTxnResponse)
        return answer

    async def end(self, *, committed: bool, version: int = 3) -> int:
        """Takes over the epoch that v5 answers."""
        answer = await self.end_answer(committed=committed, version=version)
        if version >= 5 and answer.error_code == 0:
            if (answer.producer_id, answer.producer_epoch) != self.identity:
                self.sequences = [0] * PARTITIONS
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code


def _visible(data: memoryview, aborted: list[tuple[int, int]]) -> Iterator[bytes]:
    """As a client filters: a transaction in the list is hidden up to its marker."""
    hidden: set[int] = set()
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        batch = data[position : position + size]
        base_offset = int.from_bytes(batch[:8], "big")
        producer_id = int.from_bytes(batch[43:51], "big", signed=True)
        hidden |= {producer for producer, first in aborted if first <= base_offset}
        if batch[22] & 0x20:
            hidden.discard(producer_id)
            aborted = [each for each in aborted if each[0] != producer_id or each[1] > base_offset]
        elif producer_id not in hidden:
            yield from (value for value in (r.value for r in read_columns(batch)) if value)
        position += size


@asynccontextmanager
async def txn_stage(directory: Path, **overrides: str) -> AsyncIterator[TxnStage]:
    """With topic t of two partitions and both coordinators' topics."""
    async with handler_stage(directory, **(SMALL | overrides)) as stage:
        if stage.broker.topics.topics.get(TOPIC) is None:
            await stage.topic(TOPIC, PARTITIONS)
            await stage.broker.topics.auto_create("__consumer_offsets")
            await stage.broker.topics.auto_create("__transaction_state")
        stage.clock.advance(ms=0)  # loads what is there
        yield TxnStage(stage)


@contextmanager
def crash_points(
    monkeypatch: pytest.MonkeyPatch, source: Path, target: Path
) -> Iterator[list[Path]]:
    copies: list[Path] = []
    append = PartitionLog.append_as_leader

    def keep() -> None:
        copies.append(target / str(len(copies)))
        shutil.copytree(source, copies[-1])

    def append_and_keep(self: PartitionLog, *arguments: Any, **named: Any) -> Any:
        if not copies:
            keep()
        done = append(self, *arguments, **named)
        keep()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append_as_leader", append_and_keep)
        yield copies
