"""A cluster of which another broker is the transaction coordinator, and answers when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

COORDINATOR_ID = 9


class RemoteCoordinator:
    """What `broker.transactions` uses of a ClusterMember."""

    def __init__(self) -> None:
        self.asked: list[AddPartitionsToTxnRequest] = []
        self._answer: asyncio.Future[AddPartitionsToTxnResponse] | None = None
        self._came = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def leader_of(self, topic: str, index: int) -> int:
        return COORDINATOR_ID

    def run(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def ask_coordinator(self, broker_id: int, request: Any) -> AddPartitionsToTxnResponse:
        assert broker_id == COORDINATOR_ID
        self.asked.append(request)
        self._answer = asyncio.get_running_loop().create_future()
        self._came.set()
        return await self._answer

    async def until_asked(self) -> None:
        await asyncio.wait_for(self._came.wait(), 20)

    def agree(self) -> None:
        """All that it was asked for is in the transaction."""
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index)
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in self.asked[-1].transactions
        ]
        self.answer(AddPartitionsToTxnResponse(results_by_transaction=results))

    def answer(self, response: AddPartitionsToTxnResponse) -> None:
        assert self._answer is not None
        self._answer.set_result(response)

    def fail(self, error: BaseException) -> None:
        assert self._answer is not None
        self._answer.set_exception(error)

    async def failures(self) -> list[BaseException | None]:
        """What came out of the tasks that it was given."""
        return await asyncio.gather(*self._tasks, return_exceptions=True)
