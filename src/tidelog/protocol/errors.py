"""What the codec raises.

    ProtocolError
    ├── DecodeError            bytes from a peer that are no valid message
    │   └── UnsupportedApi     a request header whose key or version is in no table
    └── EncodeError            a message of ours that the asked version cannot carry

A peer can cause a DecodeError, so it is never an assert; an EncodeError is a bug of the caller.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Root of the codec's errors."""


class DecodeError(ProtocolError):
    """The bytes are truncated, oversized or break the layout."""


class UnsupportedApi(DecodeError):
    """The header names a key or version that the tables lack; its fields are kept for an answer."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"api key {api_key} version {api_version} is not supported")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class EncodeError(ProtocolError):
    """A null where none may be, a value out of range, or a field the version does not have."""
