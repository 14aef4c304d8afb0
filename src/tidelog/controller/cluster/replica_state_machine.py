"""The states of a replica in the eyes of the controller, and the moves between them, in a draft.

NON_EXISTENT          never made, or deleted
NEW                   made for a new partition or by a reassignment: can only follow
ONLINE                started on a broker that is there
OFFLINE               its broker is gone, or the replica is not wanted any more
DELETION_STARTED      its broker has been told to delete it
DELETION_SUCCESSFUL   its broker has deleted it
DELETION_INELIGIBLE   cannot be deleted now: its broker is gone, or failed to

    -> NEW                   the replica is told to follow
    NEW -> ONLINE            nothing else: it was told when it became NEW
    other -> ONLINE          the replica is told who leads
    -> OFFLINE               the replica is stopped and leaves the in-sync set
    -> DELETION_STARTED      the replica is told to stop and delete
    -> NON_EXISTENT          the replica leaves the assignment
    the others               nothing else

The last member of an in-sync set stays in it: it is the one that may lead again. A move that the
table does not allow is logged and not made, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from tidelog.controller.cluster.controller_context import Replica
    from tidelog.controller.cluster.decision_draft import DecisionDraft

logger = logging.getLogger(__name__)


class ReplicaState(Enum):
    NON_EXISTENT = auto()
    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()


_SETTLED: Final = frozenset(
    {
        ReplicaState.NEW,
        ReplicaState.ONLINE,
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_INELIGIBLE,
    }
)

ALLOWED_FROM: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: _SETTLED,
    ReplicaState.OFFLINE: _SETTLED,
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}
    ),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}


def start(draft: DecisionDraft) -> None:
    """The states of all replicas, told from which brokers are there; those are told their part."""
    state = draft.state
    online, offline = [], []
    for replica in state.replicas_of_all(state.assignments):
        if state.is_online(replica.broker_id, replica.partition):
            state.replica_states[replica] = ReplicaState.ONLINE
            online.append(replica)
        else:
            # Should its topic be on the way out, then the replica cannot be deleted now.
            state.replica_states[replica] = ReplicaState.DELETION_INELIGIBLE
            offline.append(replica)
    move(draft, online, ReplicaState.ONLINE)
    move(draft, leaders_last(draft, offline), ReplicaState.OFFLINE)


def leaders_last(draft: DecisionDraft, replicas: Iterable[Replica]) -> list[Replica]:
    """In the order in which they are to leave in-sync sets.

    Where all members go at once, the one that led stays in the set: it knows no less than others.
    """

    def leads(replica: Replica) -> bool:
        state = draft.state.leadership.get(replica.partition)
        return state is not None and state.leader == replica.broker_id

    return sorted(replicas, key=leads)


def move(draft: DecisionDraft, replicas: Iterable[Replica], target: ReplicaState) -> None:
    act = _ACTIONS.get(target)
    for replica in replicas:
        current = draft.state.replica_state(replica)
        if current not in ALLOWED_FROM[target]:
            logger.error(
                "a replica cannot change its state like this",
                extra={"replica": replica, "from": current.name, "to": target.name},
            )
            continue
        if act is not None:
            act(draft, replica)
        draft.state.replica_states[replica] = target


def forget(draft: DecisionDraft, replicas: Iterable[Replica]) -> None:
    """DELETION_SUCCESSFUL -> NON_EXISTENT; whether the store learns of it is up to the caller."""
    for replica in replicas:
        partition, broker_id = replica
        assignment = draft.state.assignments[partition]
        draft.state.assignments[partition] = assignment.without(broker_id)
        draft.state.replica_states.pop(replica, None)
        draft.state.forget_offline_dir(broker_id, partition)


def _become_new(draft: DecisionDraft, replica: Replica) -> None:
    if replica.partition in draft.state.leadership:
        draft.requests.tell_replicas([replica.broker_id], replica.partition, is_new=True)


def _become_online(draft: DecisionDraft, replica: Replica) -> None:
    was_told = draft.state.replica_state(replica) is ReplicaState.NEW
    if not was_told and replica.partition in draft.state.leadership:
        draft.requests.tell_replicas([replica.broker_id], replica.partition)


def _become_offline(draft: DecisionDraft, replica: Replica) -> None:
    partition, broker_id = replica
    draft.requests.stop([broker_id], partition)
    draft.requests.tell_everyone([partition])
    if leave_isr(draft, replica) and not draft.state.is_to_be_deleted(partition.topic):
        others = [other for other in draft.state.replicas_of(partition) if other != broker_id]
        draft.requests.tell_replicas(others, partition)


def leave_isr(draft: DecisionDraft, replica: Replica) -> bool:
    """Whether this has changed anything."""
    partition, broker_id = replica
    state = draft.state.leadership.get(partition)
    if state is None or broker_id not in state.isr:
        return False
    leader = NO_LEADER if state.leader == broker_id else state.leader
    isr = tuple(member for member in state.isr if member != broker_id) or state.isr
    if (leader, isr) == (state.leader, state.isr):
        return False
    draft.lead(partition, state.next_epoch(leader, isr))
    return True


def _start_deletion(draft: DecisionDraft, replica: Replica) -> None:
    draft.requests.stop([replica.broker_id], replica.partition, delete=True)


_ACTIONS: Final[dict[ReplicaState, Callable[[DecisionDraft, Replica], None]]] = {
    ReplicaState.NEW: _become_new,
    ReplicaState.ONLINE: _become_online,
    ReplicaState.OFFLINE: _become_offline,
    ReplicaState.DELETION_STARTED: _start_deletion,
}
