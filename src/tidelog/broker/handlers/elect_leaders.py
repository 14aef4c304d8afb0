"""ElectLeaders v0-v2: give leadership to preferred replicas, or to any replica that is left.

Behaviour
- Election type 0 is preferred, 1 is unclean: allowed whatever the topic's configuration says, and
  done only where there is no leader. Rows are answered as they were asked for. Null stands for all
  partitions: the answer then has all topics, without the partitions that need no election.
- In a cluster the active controller elects; everybody else answers NOT_CONTROLLER. A lone broker
  leads whatever it can lead, so that an election is not needed or has nobody to elect.
Checks, in order: ALTER on the cluster (31), election type (42), partition exists (3), topic is not
being deleted (17), election is needed (84), somebody to elect (80 preferred, 83 unclean).
Versions: v1 election type and error code of the whole, v2 flexible.
Not done: waiting until all brokers know the new leaders; the answer comes when the store does.
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import ALTER
from tidelog.broker.context import RequestContext
from tidelog.controller.topics import TopicImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.types import TopicPartition


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not context.may_on_cluster(ALTER):
        from tidelog.controller.cluster.controller_apis import elections_refused

        return elections_refused(request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    controller = context.broker.controller
    if controller is not None:
        return await controller.elect_leaders(request)
    return _of_lone_broker(context, request)


def _of_lone_broker(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    # Imported here: a broker that is not asked this does not pay for the controller of clusters.
    from tidelog.controller.cluster.controller_apis import (
        election_results,
        elections_refused,
        is_election_type,
        named_partitions,
        unknown_election_type,
    )
    from tidelog.controller.cluster.partition_state_machine import PREFERRED_ELECTION

    if not is_election_type(request.election_type):
        return elections_refused(request, unknown_election_type(request.election_type))
    metadata = context.broker.metadata
    images = {image.name: metadata.as_seen(image) for image in metadata.images()}
    partitions = named_partitions(request)
    if partitions is None:
        partitions = [
            TopicPartition(image.name, index)
            for image in images.values()
            for index in range(len(image.partitions))
        ]
    preferred = request.election_type == PREFERRED_ELECTION
    return election_results(
        request,
        {tp: _refusal(images.get(tp.topic), tp.partition, preferred) for tp in partitions},
    )


def _refusal(image: TopicImage | None, index: int, preferred: bool) -> KafkaError:
    if image is None or not 0 <= index < len(image.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    partition = image.partitions[index]
    is_led = partition.leader == partition.replicas[0] if preferred else partition.leader >= 0
    if is_led:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    failure = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if preferred:
        failure = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return KafkaError(failure, f"Failed to elect leader for partition {image.name}-{index}.")
