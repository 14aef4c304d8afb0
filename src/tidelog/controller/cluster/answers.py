"""The controller's APIs as messages: what a term answers, and what everybody else does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.controller.cluster.leader_balance import PREFERRED_ELECTION, UNCLEAN_ELECTION
from tidelog.controller.cluster.term import Term
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition import AlterPartitionResponse
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.types import TopicPartition

Results = Mapping[TopicPartition, KafkaError | None]


def alter_partition_refused() -> AlterPartitionResponse:
    return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)


async def controlled_shutdown(
    term: Term, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    try:
        left = await term.controlled_shutdown(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=partition)
            for topic, partition in left
        ]
    )


def controlled_shutdown_refused() -> ControlledShutdownResponse:
    # Kafka's ControllerMovedException has this code.
    return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)


async def elect_leaders(term: Term, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    results = await term.elect_leaders(named_partitions(request), request.election_type)
    return election_results(results, everything=request.topic_partitions is None)


def named_partitions(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    """None stands for all partitions."""
    if request.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    ]


def elect_leaders_refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    refused = KafkaError(ErrorCode.NOT_CONTROLLER)
    response = election_results(dict.fromkeys(named_partitions(request) or (), refused))
    response.error_code = refused.code
    return response


def election_results(results: Results, *, everything: bool = False) -> ElectLeadersResponse:
    """When everything was to be elected, what needed no election is left out."""
    shown = {
        partition: error
        for partition, error in results.items()
        if not (everything and error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED)
    }
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    PartitionResult(
                        partition_id=partition.partition,
                        error_code=ErrorCode.NONE if error is None else error.code,
                        error_message=None if error is None else error.message,
                    )
                    for partition, error in rows
                ],
            )
            for topic, rows in _by_topic(shown)
        ]
    )


async def alter_reassignments(
    term: Term, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, row.partition_index): row.replicas
        for topic in request.topics
        for row in topic.partitions
    }
    results = await term.alter_reassignments(
        targets, same_factor=not request.allow_replication_factor_change
    )
    response = reassignment_results(results)
    response.allow_replication_factor_change = request.allow_replication_factor_change
    return response


def reassignment_results(results: Results) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition,
                        error_code=ErrorCode.NONE if error is None else error.code,
                        error_message=None if error is None else error.message,
                    )
                    for partition, error in rows
                ],
            )
            for topic, rows in _by_topic(results)
        ],
    )


def alter_reassignments_refused() -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.NOT_CONTROLLER, error_message=ErrorCode.NOT_CONTROLLER.text
    )


async def list_reassignments(
    term: Term, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    context = term.context
    named: Iterable[TopicPartition] = sorted(context.reassigning)
    if request.topics is not None:
        named = dict.fromkeys(
            TopicPartition(topic.name, partition)
            for topic in request.topics
            for partition in topic.partition_indexes
        )
    by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
    for partition in named:
        assignment = context.assignments.get(partition)
        if assignment is not None and assignment.is_being_reassigned:
            by_topic.setdefault(partition.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=partition.partition,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding),
                    removing_replicas=list(assignment.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=topic, partitions=rows)
            for topic, rows in by_topic.items()
        ],
    )


def list_reassignments_refused() -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NOT_CONTROLLER, error_message=ErrorCode.NOT_CONTROLLER.text
    )


def _by_topic(
    results: Results,
) -> list[tuple[str, list[tuple[TopicPartition, KafkaError | None]]]]:
    by_topic: dict[str, list[tuple[TopicPartition, KafkaError | None]]] = {}
    for partition, error in results.items():
        by_topic.setdefault(partition.topic, []).append((partition, error))
    return list(by_topic.items())
