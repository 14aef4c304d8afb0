"""The states of partitions and replicas: what may follow what, and that nothing is left out."""

from __future__ import annotations

import pytest

from tidelog.controller.cluster import partition_state_machine, replica_state_machine
from tidelog.controller.cluster.controller_context import (
    ControllerContext,
    Replica,
    ReplicaAssignment,
    TopicSettings,
)
from tidelog.controller.cluster.decision_draft import DecisionDraft
from tidelog.controller.cluster.partition_state_machine import ALLOWED_FROM as PARTITION_MOVES
from tidelog.controller.cluster.partition_state_machine import PartitionState
from tidelog.controller.cluster.replica_state_machine import ALLOWED_FROM as REPLICA_MOVES
from tidelog.controller.cluster.replica_state_machine import ReplicaState
from tidelog.types import TopicPartition, Uuid

T0 = TopicPartition("t", 0)


def draft() -> DecisionDraft:
    context = ControllerContext(1, TopicSettings())
    context.put_topic("t", Uuid.random(), 0, {0: ReplicaAssignment((1, 2))})
    return DecisionDraft(context)


def test_every_state_has_its_row() -> None:
    assert PARTITION_MOVES.keys() == set(PartitionState)
    assert REPLICA_MOVES.keys() == set(ReplicaState)


@pytest.mark.parametrize("before", PartitionState)
@pytest.mark.parametrize(
    "target", [PartitionState.NEW, PartitionState.OFFLINE, PartitionState.NON_EXISTENT]
)
def test_a_partition_moves_only_where_the_table_lets_it(
    before: PartitionState, target: PartitionState
) -> None:
    made = draft()
    made.state.partition_states[T0] = before
    partition_state_machine.mark(made, [T0], target)
    expected = target if before in PARTITION_MOVES[target] else before
    assert made.state.partition_state(T0) is expected


@pytest.mark.parametrize("before", ReplicaState)
@pytest.mark.parametrize("target", ReplicaState)
def test_a_replica_moves_only_where_the_table_lets_it(
    before: ReplicaState, target: ReplicaState
) -> None:
    made = draft()
    replica = Replica(T0, 1)
    made.state.replica_states[replica] = before
    replica_state_machine.move(made, [replica], target)
    expected = target if before in REPLICA_MOVES[target] else before
    assert made.state.replica_state(replica) is expected
