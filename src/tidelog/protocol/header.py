"""Request and response headers.

    request v0   api_key int16, api_version int16, correlation_id int32 (ControlledShutdown v0)
    request v1   v0, client_id nullable string (int16 length)
    request v2   v1, tag buffer; the client id keeps its int16 length (flexible versions)
    response v0  correlation_id int32
    response v1  v0, tag buffer (flexible versions, but never ApiVersions: a client that does not
                 know the broker yet must be able to read its answer)

Any negative client-id length means null. Bytes of a client id that are not UTF-8 are replaced, as
Kafka does.
"""

from __future__ import annotations

import struct
from typing import Final

from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.errors import DecodeError, UnsupportedApi
from tidelog.protocol.primitives import skip_tags

_FIXED: Final = struct.Struct(">hhi")
_UP_TO_CLIENT_ID: Final = struct.Struct(">hhih")
_unpack_up_to_client_id: Final = _UP_TO_CLIENT_ID.unpack_from
_pack_correlation_id: Final = struct.Struct(">i").pack

_NEVER_FLEXIBLE: Final = 1 << 15

# API key to (first version, last version, first flexible version).
_RANGES: Final = {
    int(key): (
        versions.min_version,
        versions.max_version,
        _NEVER_FLEXIBLE if versions.first_flexible is None else versions.first_flexible,
    )
    for key, versions in VERSIONS.items()
}
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)


class RequestHeader:
    """What stands before a request's body, which starts at `body_position` of the frame."""

    __slots__ = ("api_key", "api_version", "body_position", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_position: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_position = body_position

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Raises UnsupportedApi for a key or version without a table, DecodeError for anything else."""
    api_key: int
    api_version: int
    correlation_id: int
    n: int
    try:
        api_key, api_version, correlation_id, n = _unpack_up_to_client_id(frame)
    except struct.error:
        return _decode_without_client_id(frame)
    versions = _RANGES.get(api_key)
    if versions is None or not versions[0] <= api_version <= versions[1]:
        raise UnsupportedApi(api_key, api_version, correlation_id)
    if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
        return RequestHeader(api_key, api_version, correlation_id, None, _FIXED.size)
    client_id = None
    position = 10
    try:
        if n >= 0:
            position += n
            client_id = frame[10:position].tobytes().decode("utf-8", "replace")
        if api_version >= versions[2]:
            position = skip_tags(frame, position) if frame[position] else position + 1
    except IndexError as error:
        raise DecodeError(f"request header: {error}") from error
    if position > len(frame):
        raise DecodeError("request header: the client id ends beyond the frame")
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def _decode_without_client_id(frame: memoryview) -> RequestHeader:
    """A frame of eight or nine bytes can only be a ControlledShutdown v0 or an unknown request."""
    try:
        api_key, api_version, correlation_id = _FIXED.unpack_from(frame)
    except struct.error as error:
        raise DecodeError(f"request header: {error}") from error
    if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
        return RequestHeader(api_key, api_version, correlation_id, None, _FIXED.size)
    raise DecodeError("request header: the frame ends before the client id")


def request_header_version(api_key: int, version: int) -> int:
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version >= _RANGES[api_key][2] else 1


def response_header_version(api_key: int, version: int) -> int:
    if api_key == _API_VERSIONS:
        return 0
    return 1 if version >= _RANGES[api_key][2] else 0


def encode_response_header(correlation_id: int, api_key: int, version: int) -> bytes:
    encoded = _pack_correlation_id(correlation_id)
    if version >= _RANGES[api_key][2] and api_key != _API_VERSIONS:
        return encoded + b"\0"
    return encoded


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    header_version = request_header_version(api_key, version)
    if header_version == 0:
        return bytearray(_FIXED.pack(api_key, version, correlation_id))
    raw = b"" if client_id is None else client_id.encode()
    n = -1 if client_id is None else len(raw)
    out = bytearray(_UP_TO_CLIENT_ID.pack(api_key, version, correlation_id, n))
    out += raw
    if header_version == 2:
        out.append(0)
    return out
