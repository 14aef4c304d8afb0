"""GetTelemetrySubscriptions v0 (KIP-714): which metrics a client is to push, and how often.

Behaviour
- A client without an instance id gets one.
- The subscriptions that match the client are merged: all their metrics, the shortest interval. No
  match is no metrics and the interval of five minutes.
- The answer lists zstd, lz4, gzip and snappy, the first of which the client takes, and asks for
  delta temporality.
- Before the push interval is over: THROTTLING_QUOTA_EXCEEDED (89), see
  `telemetry/client_metrics_manager.py`.
- Without `tidelog.metrics.listener` nobody could see what is pushed. Then ApiVersions does not list
  the API, and it answers UNSUPPORTED_VERSION (35), as Kafka 3.9 does over ZooKeeper.
Checks: none of ACLs, as in Kafka.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.telemetry.client_metrics_manager import ACCEPTED_COMPRESSION
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    manager = context.broker.client_metrics
    if manager is None:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        instance = manager.get(context, request.client_instance_id)
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=instance.push_interval_ms,
        telemetry_max_bytes=manager.max_bytes,
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )
