"""UpdateMetadata v5-v8: the controller says who the brokers are and who leads what.

Behaviour
- Live brokers are replaced as a whole, partitions one by one; leader -2 removes a partition, and a
  topic goes with its last one. Groups then forget its offsets.
- Metadata, FindCoordinator and DescribeCluster answer from what was said here.
Checks, in order: CLUSTER_ACTION (31), broker epoch (77), controller epoch (11).
Versions: v6 flexible, v7 topic ids, v8 type and KRaft flag.
Not done: v0-v4, which no Kafka since 2.2 sends; full requests of a KRaft controller.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.cluster_member import must_be_in_cluster, must_obey, must_still_hold
from tidelog.broker.context import RequestContext
from tidelog.errors import KafkaError
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


async def handle(context: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    try:
        cluster = must_be_in_cluster(context)
        async with cluster.orders:
            must_obey(cluster, request.controller_epoch, request.broker_epoch)
            await cluster.update_metadata(
                request,
                partial(must_still_hold, cluster, request.controller_epoch, request.broker_epoch),
            )
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    return UpdateMetadataResponse()
