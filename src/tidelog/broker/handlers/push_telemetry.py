"""PushTelemetry v0 (KIP-714): metrics of a client, shown at /metrics.

Checks, in order, as Kafka: the instance id is not reserved (INVALID_REQUEST), the last push was not
the terminating one (INVALID_REQUEST), the push interval is over or the push is the terminating one
(THROTTLING_QUOTA_EXCEEDED), the subscription id (UNKNOWN_SUBSCRIPTION_ID), the codec
(UNSUPPORTED_COMPRESSION_TYPE), `telemetry.max.bytes` (TELEMETRY_TOO_LARGE). Metrics that do not
decompress or decode are INVALID_RECORD, Kafka's answer where its plug-in fails.
Unlike Kafka, metrics that inflate to more than 16 times `telemetry.max.bytes` are
TELEMETRY_TOO_LARGE: Kafka inflates whatever comes.
Without `tidelog.metrics.listener`: UNSUPPORTED_VERSION, see `get_telemetry_subscriptions.py`.
Checks of ACLs: none, as in Kafka.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    manager = context.broker.client_metrics
    if manager is None:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        await manager.push(context, request)
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
