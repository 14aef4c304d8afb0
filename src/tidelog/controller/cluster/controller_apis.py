"""The controller's APIs as messages: the active controller's answers, and everybody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.controller.cluster.active_controller import ActiveController
from tidelog.controller.cluster.partition_state_machine import PREFERRED_ELECTION, UNCLEAN_ELECTION
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_partition import AlterPartitionResponse
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
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
    active: ActiveController, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    try:
        left = await active.controlled_shutdown(request.broker_id, request.broker_epoch)
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


async def elect_leaders(
    active: ActiveController, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    if not is_election_type(request.election_type):
        return elections_refused(request, unknown_election_type(request.election_type))
    results = await active.elect_leaders(named_partitions(request), request.election_type)
    return election_results(request, results)


def is_election_type(election_type: int) -> bool:
    return election_type in (PREFERRED_ELECTION, UNCLEAN_ELECTION)


def unknown_election_type(election_type: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}.")


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
    return elections_refused(request, KafkaError(ErrorCode.NOT_CONTROLLER))


def elections_refused(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    response = election_results(request, dict.fromkeys(named_partitions(request) or (), error))
    response.error_code = error.code
    return response


def election_results(request: ElectLeadersRequest, results: Results) -> ElectLeadersResponse:
    """Rows as they were asked for. Where that is everything, what needed no election is left out,
    but its topic is not.
    """
    if request.topic_partitions is not None:
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[
                        _elected(index, results[TopicPartition(topic.topic, index)])
                        for index in topic.partitions
                    ],
                )
                for topic in request.topic_partitions
            ]
        )
    by_topic: dict[str, list[PartitionResult]] = {}
    for (topic_name, index), error in results.items():
        rows = by_topic.setdefault(topic_name, [])
        if error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
            rows.append(_elected(index, error))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic_name, partition_result=rows)
            for topic_name, rows in by_topic.items()
        ]
    )


def _elected(index: int, error: KafkaError | None) -> PartitionResult:
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


async def alter_reassignments(
    active: ActiveController, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, row.partition_index): row.replicas
        for topic in request.topics
        for row in topic.partitions
    }
    results = await active.alter_reassignments(
        targets, same_factor=not request.allow_replication_factor_change
    )
    response = reassignment_results(
        request, lambda topic, row: results[TopicPartition(topic, row.partition_index)]
    )
    response.allow_replication_factor_change = request.allow_replication_factor_change
    return response


def reassignment_results(
    request: AlterPartitionReassignmentsRequest,
    outcome_of: Callable[[str, ReassignablePartition], KafkaError | None],
) -> AlterPartitionReassignmentsResponse:
    """Rows as they were asked for."""
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassigned(row.partition_index, outcome_of(topic.name, row))
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassigned(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


def alter_reassignments_refused() -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.NOT_CONTROLLER, error_message=ErrorCode.NOT_CONTROLLER.text
    )


async def list_reassignments(
    active: ActiveController, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    context = active.context
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
