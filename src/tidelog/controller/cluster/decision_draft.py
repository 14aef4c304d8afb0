"""A decision in the making: the state it leads to, the writes it needs, the brokers to tell.

Decisions are functions that take a draft. They read and change its `state`, a draft of the
controller's context; nothing they do is seen by anyone before `DecisionExecutor` has written the
operations of the draft to the store. If the store refuses because something has changed meanwhile,
the draft is thrown away and the decision is made again on what the store says now.

However often a decision changes a partition, its state node is written once, so its new partition
epoch is known beforehand: one more than the node's version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidelog.controller import znodes
from tidelog.controller.cluster.controller_broker_request_batch import ControllerBrokerRequestBatch
from tidelog.controller.cluster.controller_context import ControllerContext, ReplicaAssignment
from tidelog.controller.cluster.election import Election, Eligibility, Eligible, eligible_after
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.controller.metadata_store import Check, Create, Operation, SetData
from tidelog.types import NO_LEADER, TopicPartition


class DecisionDraft:
    def __init__(self, context: ControllerContext, gone_topics: Collection[str] = ()) -> None:
        self._context = context
        self.gone_topics = gone_topics  # not in the store any more, whatever was read before
        self.state = context.draft()
        self.requests = ControllerBrokerRequestBatch()
        self.deleted_topics: set[str] = set()  # to be taken out of the store once all is told
        self.elections: list[Election] = []  # of partitions that had a leader once
        self._led: dict[TopicPartition, None] = {}
        self._assigned: dict[str, None] = {}

    def stored_leadership(self, partition: TopicPartition) -> LeaderAndIsr | None:
        """What held before this decision."""
        return self._context.leadership.get(partition)

    def lead(self, partition: TopicPartition, decided: LeaderAndIsr) -> LeaderAndIsr:
        """Gives the partition this leader and in-sync set; the eligible replicas follow."""
        before = self.state.leadership.get(partition)
        if before is not None:
            elr, last_known = self.eligible(partition, before, decided)
            decided = decided._replace(elr=elr, last_known_elr=last_known)
        return self.set_leadership(partition, decided)

    def eligible(
        self, partition: TopicPartition, before: LeaderAndIsr, decided: LeaderAndIsr
    ) -> Eligible:
        """Who is eligible after a change (KIP-966)."""
        return eligible_after(before, decided, self._eligibility(partition, before, decided))

    def set_leadership(self, partition: TopicPartition, decided: LeaderAndIsr) -> LeaderAndIsr:
        """As `lead`, with the eligible replicas as they are given."""
        stored = self._context.leadership.get(partition)
        made = decided._replace(
            partition_epoch=0 if stored is None else stored.partition_epoch + 1,
            controller_epoch=self.state.epoch,
        )
        self.state.leadership[partition] = made
        self._led[partition] = None
        return made

    def _eligibility(
        self, partition: TopicPartition, before: LeaderAndIsr, decided: LeaderAndIsr
    ) -> Eligibility:
        """By what the leader goes by, or the last one did: without a leader nothing is appended,
        and whoever was eligible stays so.
        """
        state = self.state
        replicas = state.replicas_of(partition)
        leader = state.brokers.get(decided.leader)
        last_id = before.leader if decided.leader == NO_LEADER else decided.leader
        last = state.brokers.get(last_id) or self._context.brokers.get(last_id)
        minimum = state.stored_min_isr(partition.topic, last_id)
        if minimum is None:
            minimum = len(replicas) if last is None else last.min_insync_replicas
        return Eligibility(
            replicas,
            minimum,
            leader_keeps_strict_min_isr=leader is None or leader.keeps_strict_min_isr,
        )

    def assign(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        topic = partition.topic
        self.state.assignments[partition] = assignment
        if topic not in self._assigned:
            node = self.state.topics[topic]
            self.state.topics[topic] = node._replace(version=node.version + 1)
            self._assigned[topic] = None

    @property
    def partitions_led(self) -> list[TopicPartition]:
        """Those whose state nodes are written."""
        return list(self._led)

    @property
    def topics_assigned(self) -> list[str]:
        """Those whose nodes are written."""
        return list(self._assigned)

    def operations(self) -> Iterator[Operation]:
        for partition in self._led:
            stored = self._context.leadership.get(partition)
            if stored is not None:
                data = self.state.leadership[partition].encode()
                yield SetData(znodes.state_path(*partition), data, stored.partition_epoch)
        for topic in self._assigned:
            yield self._assignment_write(topic)
        yield from self._first_states()

    def _first_states(self) -> Iterator[Operation]:
        """Making the state of a partition must not bring back a topic that is gone."""
        new: dict[str, list[TopicPartition]] = {}
        for partition in self._led:
            if partition not in self._context.leadership:
                new.setdefault(partition.topic, []).append(partition)
        for topic, partitions in new.items():
            yield Check(znodes.topic_path(topic))
            for partition in partitions:
                data = self.state.leadership[partition].encode()
                yield Create(znodes.state_path(*partition), data, make_parents=True)

    def _assignment_write(self, topic: str) -> SetData:
        node = self.state.topics[topic]
        rows = {tp.partition: self.state.assignments[tp] for tp in self.state.partitions_of(topic)}
        encoded = znodes.encode_assignment(
            znodes.TopicAssignment(
                node.topic_id,
                {partition: row.replicas for partition, row in rows.items()},
                {partition: row.adding for partition, row in rows.items() if row.adding},
                {partition: row.removing for partition, row in rows.items() if row.removing},
            )
        )
        return SetData(znodes.topic_path(topic), encoded, node.version - 1)
