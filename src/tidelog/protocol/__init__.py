"""Kafka's wire protocol as a sans-I/O codec: buffers in and out, no socket, no clock.

`schemas/` is the table of facts, `generator.py` turns it into `messages/`, `header.py` and
`api_keys.py` tell which message a frame holds, `registry.py` finds its class.
"""

from __future__ import annotations

from tidelog.protocol.errors import DecodeError, EncodeError, ProtocolError, UnsupportedApi

__all__ = ["DecodeError", "EncodeError", "ProtocolError", "UnsupportedApi"]
