"""Asking the controller for changes of in-sync replicas (AlterPartition, KIP-497).

One request is under way at a time; what is proposed meanwhile goes with the next one. An answer
counts only while the partition still proposes what was asked for: a LeaderAndIsr request may have
come first.

    the controller says                              then
    (none)                                           the ISR is committed
    OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA      the proposal is withdrawn
    UNKNOWN_TOPIC_*, FENCED_LEADER_EPOCH, INVALID_*  wait for LeaderAndIsr: we know too little
    STALE_BROKER_EPOCH                               ask again after NO_MEMBER_RETRY_S
    anything else, or nothing                        ask again after RETRY_S
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from tidelog.supervisor import attempted
from tidelog.types import Uuid

if TYPE_CHECKING:
    import asyncio

    from tidelog.clock import Timer
    from tidelog.replication.partition import Partition
    from tidelog.replication.partition_host import PartitionHost

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.05
NO_MEMBER_RETRY_S: Final = 1.0  # this life of the broker is over: LeaderAndIsr comes to the next

_NOT_MADE: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_WAIT_FOR_NEWS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)

Send = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
Proposal = tuple["Partition", frozenset[int]]


class AlterPartitionManager:
    """Touched only on the broker loop."""

    def __init__(
        self,
        send: Send,
        broker_epoch: Callable[[], int],
        *,
        loop: asyncio.AbstractEventLoop,
        timer: Timer,
    ) -> None:
        self.host: PartitionHost  # set by whoever hosts the partitions, before the first one leads
        self._send = send
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._timer = timer
        self.isr_shrinks = 0  # that the controller committed
        self.isr_expands = 0
        self._unsent: dict[Partition, None] = {}
        self._under_way: asyncio.Task[None] | None = None
        self._is_due = False
        self._closed = False

    def submit(self, partition: Partition) -> None:
        self._unsent[partition] = None
        self._send_soon(0.0)

    def close(self) -> None:
        self._closed = True
        self._unsent.clear()

    def _send_soon(self, delay_s: float) -> None:
        if not self._is_due and self._under_way is None and not self._closed:
            self._is_due = True
            self._timer.call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._is_due = False
        if not self._closed:
            self._under_way = self._loop.create_task(self._ask())

    async def _ask(self) -> None:
        """Whatever goes wrong, what is proposed still is asked for again."""
        asked = self._proposals()
        delay_s = RETRY_S

        async def ask() -> None:
            nonlocal delay_s
            try:
                if asked:
                    delay_s = self._handle_response(asked, await self._send(self._request(asked)))
            except (OSError, KafkaError) as error:
                logger.warning("the controller cannot be asked for ISR changes: %s", error)

        try:
            await attempted("asking for ISR changes", ask)
        finally:
            self._under_way = None
            self._ask_again(asked, delay_s)

    def _proposals(self) -> dict[tuple[Uuid, int], Proposal]:
        """To be asked for in this turn of the loop: by the next an order may have ended them."""
        asked: dict[tuple[Uuid, int], Proposal] = {}
        for partition in self._unsent:
            leadership = partition.leadership
            if leadership is not None and leadership.proposed_isr is not None:
                key = (partition.topic_id, partition.topic_partition.partition)
                asked[key] = (partition, leadership.proposed_isr)
        self._unsent.clear()
        return asked

    def _ask_again(self, asked: dict[tuple[Uuid, int], Proposal], delay_s: float) -> None:
        for partition, proposed in asked.values():
            leadership = partition.leadership
            if leadership is not None and leadership.proposed_isr is proposed:
                self._unsent[partition] = None
        if self._unsent:
            self._send_soon(delay_s)

    def _request(self, asked: dict[tuple[Uuid, int], Proposal]) -> AlterPartitionRequest:
        topics: dict[Uuid, AlterPartitionRequestTopicData] = {}
        for partition, _ in asked.values():
            topic = topics.setdefault(
                partition.topic_id,
                AlterPartitionRequestTopicData(
                    topic_name=partition.topic_partition.topic, topic_id=partition.topic_id
                ),
            )
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=self._with_epochs(partition),
                    partition_epoch=partition.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self.host.broker_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )

    def _with_epochs(self, partition: Partition) -> list[BrokerState]:
        """In the order of the assignment, as the state node lists them."""
        assert partition.leadership is not None
        epochs = {**partition.leadership.proposed_epochs, self.host.broker_id: self._broker_epoch()}
        return [
            BrokerState(broker_id=broker_id, broker_epoch=epochs[broker_id])
            for broker_id in partition.replicas
            if broker_id in epochs
        ]

    def _handle_response(
        self, asked: dict[tuple[Uuid, int], Proposal], response: AlterPartitionResponse
    ) -> float:
        """The delay after which what is left is asked for again."""
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            logger.warning("the controller refuses ISR changes: %s", code.name)
            return NO_MEMBER_RETRY_S if code is ErrorCode.STALE_BROKER_EPOCH else RETRY_S
        for topic in response.topics:
            for row in topic.partitions:
                partition, proposed = asked.get((topic.topic_id, row.partition_index), (None, None))
                if partition is None:
                    continue
                leadership = partition.leadership
                if leadership is not None and leadership.proposed_isr is proposed:
                    self._commit_or_withdraw(partition, row)
                    if row.error_code in _WAIT_FOR_NEWS:
                        del asked[topic.topic_id, row.partition_index]
        return RETRY_S

    def _commit_or_withdraw(
        self, partition: Partition, row: AlterPartitionResponsePartitionData
    ) -> None:
        assert partition.leadership is not None
        if row.error_code == ErrorCode.NONE:
            if len(row.isr) < len(partition.isr):
                self.isr_shrinks += 1
            elif len(row.isr) > len(partition.isr):
                self.isr_expands += 1
            partition.isr_altered(row.isr, row.leader_epoch, row.partition_epoch)
            logger.info(
                "ISR changed",
                extra={
                    "event": "isr-changed",
                    "partition": str(partition.topic_partition),
                    "isr": sorted(partition.isr),
                    "partition_epoch": partition.partition_epoch,
                },
            )
            return
        logger.info(
            "the controller has not changed an ISR",
            extra={
                "partition": str(partition.topic_partition),
                "error": ErrorCode.of(row.error_code).name,
            },
        )
        if row.error_code in _NOT_MADE:
            partition.leadership.withdraw()
