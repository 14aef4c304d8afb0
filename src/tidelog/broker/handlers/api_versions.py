"""ApiVersions v0-v4: what this broker serves.

Behaviour
- Lists the rows of the API table; nothing else is advertised. GetTelemetrySubscriptions and
  PushTelemetry are listed where `tidelog.metrics.listener` is set. Kafka lists them where a plug-in
  takes the metrics.
- v3+ carry the client's software name and version, which must match [a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*
  [a-zA-Z0-9])?, else INVALID_REQUEST.
- Features (v3+): transaction.version is finalized at 2, which tells clients to use KIP-890;
  group.version at 1 (KIP-848) if group.coordinator.rebalance.protocols has it. What is supported
  begins at 0, which clients before v4 cannot read, and is not told to them.
- A version that is not known is answered by the dispatcher in v0 with UNSUPPORTED_VERSION.
Unlike Kafka
- kraft.version, metadata.version and eligible.leader.replicas.version are KRaft's own and are not
  told; share.version and streams.version belong to protocols that are not served.
- The order of the features is ours; Kafka's is that of a hash map.
Versions: v1 throttle time, v3 flexible (the response header stays v0), v4 lower feature levels.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidelog.broker.api_table import served
from tidelog.broker.context import RequestContext
from tidelog.coordinator.txn.transaction import BUMPS_EPOCH
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
HAS_CONSUMER_PROTOCOL: Final = 1  # level of group.version
FIRST_VERSION_WITH_FEATURES: Final = 3
FIRST_VERSION_WITH_LEVEL_0: Final = 4

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= FIRST_VERSION_WITH_FEATURES:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.client_software_name = name
        context.session.client_software_version = version
    response = ApiVersionsResponse(api_keys=_served(context.broker))
    if context.api_version >= FIRST_VERSION_WITH_FEATURES:
        _add_features(response, context)
    return response


def _add_features(response: ApiVersionsResponse, context: RequestContext) -> None:
    levels = {TRANSACTION_VERSION: BUMPS_EPOCH}
    if context.broker.groups.settings.consumer.is_enabled:
        levels[GROUP_VERSION] = HAS_CONSUMER_PROTOCOL
    if context.api_version >= FIRST_VERSION_WITH_LEVEL_0:
        response.supported_features = [
            SupportedFeatureKey(name=name, max_version=level) for name, level in levels.items()
        ]
    response.finalized_features_epoch = 0
    response.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
    ]


def unsupported_version(broker: Broker) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served(broker))


def _served(broker: Broker) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in served(in_cluster=broker.cluster is not None)
        if broker.client_metrics is not None or not api.is_telemetry
    ]
