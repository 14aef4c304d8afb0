"""Carries out decisions: makes them on a draft, writes the draft, tells the brokers.

When the store refuses the writes of a draft, the nodes concerned are read again and the decision
is made anew on what they say now. A partition whose node turns out to hold something else than was
known is told to its replicas again: it may be what this controller wrote itself, in a write that
was done in part or whose answer was lost. A topic whose node turns out to be gone is out of every
further try; where the nodes say nothing new, there is a pause before it.

A decision that fails has changed nothing, or what `is_half_done` tells of: the store has it, and
brokers were not told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import TypeVar

from tidelog.controller import znodes
from tidelog.controller.cluster import cluster_reader
from tidelog.controller.cluster.controller_broker_request_batch import Sender, control_requests
from tidelog.controller.cluster.controller_channel_manager import ControllerChannelManager
from tidelog.controller.cluster.controller_context import ControllerContext, TopicNode
from tidelog.controller.cluster.controller_store import Conflict, ControllerStore
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.election import Election
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.controller.cluster.partition_state_machine import PartitionState
from tidelog.controller.metadata_store import Delete, Operation
from tidelog.slices import Slices
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")


class DecisionExecutor:
    """Touched only by the event that the controller is at."""

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        channels: ControllerChannelManager,
        sender: Sender,
        elections: Counter[str],
    ) -> None:
        self._context = context
        self._store = store
        self._channels = channels
        self._sender = sender
        self._elections = elections  # by reason, of all terms of this broker
        # Found changed in the store: told by the next decision that is carried out.
        self._to_tell: set[TopicPartition] = set()
        self._slices = Slices()
        self.is_half_done = False

    async def carry_out(self, decide: Callable[[DecisionDraft], T]) -> T:
        """What the decision returned; once it returns, the store has it and brokers are told."""
        gone: set[str] = set()
        while True:
            draft = DecisionDraft(self._context, gone)
            for partition in sorted(self._to_tell.intersection(self._context.leadership)):
                draft.requests.tell_replicas(self._context.replicas_of(partition), partition)
            result = decide(draft)
            try:
                await self._store.write(draft.operations())
            except Conflict as conflict:
                logger.info("the store has changed meanwhile", extra={"path": str(conflict)})
                nodes = self._nodes(draft)
                await self._refresh_topics(draft.topics_assigned)
                changed = await self.refresh(draft.partitions_led)
                fresh_gone = await self._forget_gone(draft) - gone
                if not changed and not fresh_gone and nodes == self._nodes(draft):
                    await self._store.pause()  # nothing that would lead to another decision
                self._to_tell |= changed
                gone |= fresh_gone
                continue
            self.is_half_done = True
            self._context.take_over(draft.state)
            self._tell(draft)
            self._to_tell.clear()
            await self._remove_topics(draft.deleted_topics)
            self.is_half_done = False
            for election in draft.elections:
                await self._slices.breathe()
                self._elections[election.reason] += election.elected is not None
                _log_election(election)
            return result

    def _nodes(self, draft: DecisionDraft) -> list[TopicNode | None]:
        return [self._context.topics.get(name) for name in draft.topics_assigned]

    async def _forget_gone(self, draft: DecisionDraft) -> set[str]:
        """The topics of a refused draft that the store has no more."""
        topics = {*draft.topics_assigned, *(tp.topic for tp in draft.partitions_led)}
        gone = {name for name in topics if not await self._store.exists(znodes.topic_path(name))}
        for name in gone:
            self._context.remove_topic(name)
        return gone

    def _tell(self, draft: DecisionDraft) -> None:
        self._channels.reconcile(self._context.brokers)
        requests = control_requests(draft.requests, self._context, self._sender)
        for broker_id, in_order in requests.items():
            self._channels.send(broker_id, in_order)

    async def _remove_topics(self, topics: Collection[str]) -> None:
        for name in sorted(topics):
            await _remove_topic(self._store, name)
            self._context.remove_topic(name)
            logger.info("topic deleted", extra={"event": "topic-removed", "topic": name})

    async def refresh(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Reads the state of partitions again; those of which something else was known."""
        found = await asyncio.gather(
            *(self._store.get_or_none(znodes.state_path(*partition)) for partition in partitions)
        )
        changed = set()
        for partition, node in zip(partitions, found, strict=True):
            stored = None if node is None else LeaderAndIsr.decode(node[0], node[1].version)
            if stored != self._context.leadership.get(partition):
                changed.add(partition)
                self._take_in(partition, stored)
        await self._refresh_topics(
            {tp.topic for tp in changed if tp not in self._context.leadership}
        )
        return changed

    def _take_in(self, partition: TopicPartition, stored: LeaderAndIsr | None) -> None:
        context = self._context
        if stored is None:
            del context.leadership[partition]
            state = PartitionState.NEW
        else:
            context.leadership[partition] = stored
            online = context.is_online(stored.leader, partition)
            state = PartitionState.ONLINE if online else PartitionState.OFFLINE
        if partition in context.partition_states:
            context.partition_states[partition] = state

    async def _refresh_topics(self, topics: Collection[str]) -> None:
        """Partitions that are new in a topic's node get their state when its watch tells of it."""
        for name in topics:
            stored = await cluster_reader.read_topic(self._store, name)
            if stored is None:
                self._context.remove_topic(name)
                continue
            known = {
                tp.partition: self._context.assignments[tp]
                for tp in self._context.partitions_of(name)
            }
            assignments = {**stored.assignments, **known}
            self._context.put_topic(name, stored.topic_id, stored.version, assignments)


def _log_election(election: Election) -> None:
    partition, before, reason, elected = election
    fields = {"partition": str(partition), "was": before.leader, "reason": reason}
    if elected is None:
        logger.warning(
            "a partition has no leader",
            extra={"event": "leader-missing", **fields, "isr": list(before.isr)},
        )
    else:
        logger.info(
            "leader elected",
            extra={
                "event": "leader-elected",
                **fields,
                "leader": elected.leader,
                "leader_epoch": elected.leader_epoch,
                "isr": list(elected.isr),
            },
        )


async def _remove_topic(store: ControllerStore, name: str) -> None:
    """The topic, its configuration, and the wish to delete it."""
    while True:
        try:
            await store.write(await _deletions_of(store, name))
        except Conflict:
            continue
        return


async def _deletions_of(store: ControllerStore, name: str) -> list[Operation]:
    partitions = await store.children(znodes.partitions_path(name))
    below = await asyncio.gather(
        *(store.children(f"{znodes.partitions_path(name)}/{each}") for each in partitions)
    )
    paths = []
    for partition, nodes in zip(partitions, below, strict=True):
        path = f"{znodes.partitions_path(name)}/{partition}"
        paths += [f"{path}/{node}" for node in nodes]
        paths.append(path)
    for path in (
        znodes.partitions_path(name),
        znodes.topic_path(name),
        znodes.config_path("topics", name),
        znodes.delete_topic_path(name),
    ):
        if await store.exists(path):
            paths.append(path)
    return [Delete(path) for path in paths]
