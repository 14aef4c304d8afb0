"""DescribeCluster v0-v2: the cluster id, the controller and the live brokers.

Behaviour
- Endpoint type 1 (brokers) is served; 2 (controllers) is MISMATCHED_ENDPOINT_TYPE, any other
  UNSUPPORTED_ENDPOINT_TYPE.
- Authorised operations are the whole set while no authorizer is configured; the smallest
  integer when not asked for, and none for a client that may not DESCRIBE the cluster. The rest is
  for everybody.
Versions: v1 endpoint type (KIP-919), v2 fenced brokers.
"""

from __future__ import annotations

from tidelog.acls import CLUSTER_NAME
from tidelog.broker.authorized_operations import (
    CLUSTER,
    CLUSTER_OPERATIONS,
    DESCRIBE,
    NOT_REQUESTED,
)
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        mismatch = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if mismatch
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"this endpoint serves brokers, not type {request.endpoint_type}",
        )
    metadata = context.broker.metadata
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in metadata.nodes(context.session.listener_name)
        ],
        cluster_authorized_operations=_operations(context, request),
    )


def _operations(context: RequestContext, request: DescribeClusterRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return NOT_REQUESTED
    if not context.may_on_cluster(DESCRIBE):
        return 0
    return context.authorized_operations(CLUSTER_OPERATIONS, CLUSTER, CLUSTER_NAME)
