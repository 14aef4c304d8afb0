"""Transactions, seen from outside: which there are, how far they are, who writes.

A transactional id is known to its coordinator (`list_transactions`, `describe_transactions`), a
producer with an open transaction to the leaders of the partitions it writes to
(`describe_producers`). `abort_transaction` writes an abort marker to one partition, past the
coordinator: for a transaction that the coordinator knows nothing of. `end_transactions` ends what a
producer has handed over (`Producer.hand_over_transaction`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError, UnreadableAnswer
from tidelog.client.network.coordinators import CoordinatorKind
from tidelog.client.producer.sequences import ProducerIdAndEpoch
from tidelog.client.producer.transaction_requests import END_TXN_V1, OpenTransaction
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.types import TopicPartition

TRANSACTION: Final = CoordinatorKind.TRANSACTION
NO_DURATION: Final = -1
NO_TXN_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
PARTITIONS_PER_REQUEST: Final = 500

_DURATION_VERSION: Final = 1
_PATTERN_VERSION: Final = 2


class TransactionListing(NamedTuple):
    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int  # NO_TIMESTAMP where none is under way
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """As the leader of a partition knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # of the last marker; -1 before the first
    last_sequence: int
    last_timestamp: int
    txn_start_offset: int  # NO_TXN_OFFSET: no transaction is open


class TransactionCalls(Asking):
    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = NO_DURATION,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """Of all brokers; the brokers filter: open for at least `duration_ms` (from 3.8), an id
        that matches `pattern` (from 4.1). Raises if one of them cannot tell."""
        needed = 0 if duration_ms == NO_DURATION else _DURATION_VERSION
        needed = needed if pattern is None else _PATTERN_VERSION
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )

        async def ask(node_id: int, _: list[int]) -> Found[int, list[TransactionListing]]:
            response = await self.of_broker(
                node_id, request, ListTransactionsResponse, at_least=needed
            )
            problem = problem_of(f"transactions of broker {node_id}", response.error_code)
            rows = [
                TransactionListing(
                    row.transactional_id, node_id, row.producer_id, row.transaction_state
                )
                for row in response.transaction_states
            ]
            return {node_id: problem or rows}

        async def step(nodes: list[int], _: int) -> Found[int, list[TransactionListing]]:
            return await self.of_brokers({node_id: [node_id] for node_id in nodes}, ask)

        brokers = await self.broker_ids(timeout)
        found = await self.each("the list of transactions", brokers, step, timeout)
        return [row for result in found.values() for row in result.get()]

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, Result[TransactionDescription]]:
        async def ask(node_id: int, some: list[str]) -> Found[str, TransactionDescription]:
            request = DescribeTransactionsRequest(transactional_ids=some)
            response = await self.of_coordinator(node_id, request, DescribeTransactionsResponse)
            return {
                row.transactional_id: problem_of(
                    f"transactional id {row.transactional_id}", row.error_code
                )
                or TransactionDescription(
                    row.transactional_id,
                    node_id,
                    row.producer_id,
                    row.producer_epoch,
                    row.transaction_state,
                    row.transaction_timeout_ms,
                    row.transaction_start_time_ms,
                    tuple(
                        TopicPartition(topic.topic, index)
                        for topic in row.topics
                        for index in topic.partitions
                    ),
                )
                for row in response.transaction_states
            }

        async def step(some: list[str], _: int) -> Found[str, TransactionDescription]:
            return await self.of_coordinators(TRANSACTION, some, ask)

        return await self.each("description of transactions", transactional_ids, step, timeout)

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Result[list[ActiveProducer]]]:
        """As the leader of each partition, or the broker named, knows them."""

        async def step(
            some: list[TopicPartition], _: int
        ) -> Found[TopicPartition, list[ActiveProducer]]:
            if broker_id is not None:
                return await self.of_brokers({broker_id: some}, self._producers_at)
            return await self.of_leaders(some, self._producers_at)

        return await self.each("description of producers", partitions, step, timeout)

    async def _producers_at(
        self, node_id: int, partitions: list[TopicPartition]
    ) -> Found[TopicPartition, list[ActiveProducer]]:
        found: dict[TopicPartition, list[ActiveProducer] | ClientError] = {}
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            topics: dict[str, TopicRequest] = {}
            for name, index in partitions[start : start + PARTITIONS_PER_REQUEST]:
                row = topics.setdefault(name, TopicRequest(name=name))
                row.partition_indexes.append(index)
            request = DescribeProducersRequest(topics=list(topics.values()))
            response = await self.of_broker(node_id, request, DescribeProducersResponse)
            for topic in response.topics:
                for answer in topic.partitions:
                    key = TopicPartition(topic.name, answer.partition_index)
                    problem = problem_of(
                        f"producers of partition {key} at broker {node_id}",
                        answer.error_code,
                        answer.error_message,
                    )
                    found[key] = problem or [
                        ActiveProducer(
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.coordinator_epoch,
                            producer.last_sequence,
                            producer.last_timestamp,
                            producer.current_txn_start_offset,
                        )
                        for producer in answer.active_producers
                    ]
        return found

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timeout: float | None = None,
    ) -> None:
        """Writes an abort marker for the producer to this one partition."""
        what = f"abort of producer {producer_id} in partition {partition}"
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=[partition.partition]
                )
            ],
            # Before the producer's first marker there is none; 0 is older than any leader's.
            coordinator_epoch=max(coordinator_epoch, 0),
        )

        async def ask(node_id: int, _: list[TopicPartition]) -> Found[TopicPartition, None]:
            request = WriteTxnMarkersRequest(markers=[marker])
            response = await self.of_broker(node_id, request, WriteTxnMarkersResponse)
            codes = [
                row.error_code
                for answer in response.markers
                for topic in answer.topics
                for row in topic.partitions
            ]
            if len(codes) != 1:
                return {partition: UnreadableAnswer(f"{what}: {len(codes)} answers")}
            return {partition: problem_of(what, codes[0])}

        async def step(some: list[TopicPartition], _: int) -> Found[TopicPartition, None]:
            return await self.of_leaders(some, ask)

        found = await self.each(what, [partition], step, timeout)
        found[partition].get()

    async def end_transactions(
        self,
        transactions: Iterable[OpenTransaction],
        *,
        committed: bool,
        timeout: float | None = None,
    ) -> dict[str, Result[None]]:
        """By transactional id. One that has been ended this way already is a success; one that was
        ended the other way, or has a newer producer, is an error."""
        wanted = {each.transactional_id: each for each in transactions}

        async def ask(node_id: int, some: list[str]) -> Found[str, None]:
            answers = await asyncio.gather(*(end(node_id, wanted[each]) for each in some))
            return dict(zip(some, answers, strict=True))

        async def end(node_id: int, each: OpenTransaction) -> ClientError | None:
            request = EndTxnRequest(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                committed=committed,
            )
            row = await self.of_coordinator(
                node_id,
                request,
                EndTxnResponse,
                at_most=None if each.is_v2 else END_TXN_V1,
                at_least=END_TXN_V1 + 1 if each.is_v2 else 0,
            )
            return problem_of(f"transactional id {each.transactional_id}", row.error_code)

        async def step(some: list[str], _: int) -> Found[str, None]:
            return await self.of_coordinators(TRANSACTION, some, ask)

        return await self.each("end of transactions", wanted, step, timeout)

    async def fence_producers(
        self,
        transactional_ids: Iterable[str],
        *,
        timeout: float | None = None,
    ) -> dict[str, Result[ProducerIdAndEpoch]]:
        """The producers that have these ids now can write no more; what they began is aborted."""

        async def ask(
            node_id: int, some: list[str], left_ms: int
        ) -> Found[str, ProducerIdAndEpoch]:
            found: dict[str, ProducerIdAndEpoch | ClientError] = {}
            for each in some:
                # The timeout is that of transactions of the fenced id, if it is ever used again.
                request = InitProducerIdRequest(
                    transactional_id=each, transaction_timeout_ms=max(1, left_ms)
                )
                row = await self.of_coordinator(node_id, request, InitProducerIdResponse)
                problem = problem_of(f"transactional id {each}", row.error_code)
                found[each] = problem or ProducerIdAndEpoch(row.producer_id, row.producer_epoch)
            return found

        async def step(some: list[str], left_ms: int) -> Found[str, ProducerIdAndEpoch]:
            return await self.of_coordinators(
                TRANSACTION, some, lambda node_id, keys: ask(node_id, keys, left_ms)
            )

        return await self.each("fencing of producers", transactional_ids, step, timeout)
