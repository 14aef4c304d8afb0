"""ApiVersions v0-v4: what this broker serves.

Behaviour
- Lists the rows of the API table; nothing else is advertised.
- v3+ carry the client's software name and version, which must match [a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*
  [a-zA-Z0-9])?, else INVALID_REQUEST.
- A version that is not known is answered by the dispatcher in v0 with UNSUPPORTED_VERSION.
Versions: v1 throttle time, v3 flexible (the response header stays v0), v4 lower feature levels.
"""

from __future__ import annotations

import re

from tidelog.broker.api_table import API_TABLE
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    return ApiVersionsResponse(api_keys=_served())


def unsupported_version() -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served())


def _served() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        for api in API_TABLE
    ]
