"""Plain integers that say what the network layer did. Each object is written by one thread only."""

from __future__ import annotations

from enum import StrEnum


class CloseReason(StrEnum):
    PEER_CLOSED = "peer closed"
    PEER_RESET = "peer reset"
    INVALID_FRAME = "invalid frame length"
    BAD_REQUEST = "bad request"
    HANDLER_ERROR = "handler error"
    INTERNAL_ERROR = "internal error"
    FILE_TRUNCATED = "file truncated"
    IDLE = "idle"
    MEMORY_STALL = "stalled while memory is short"
    OUT_OF_MEMORY = "out of memory"
    TOO_MANY_PER_IP = "too many connections of one address"
    TOO_MANY = "too many connections"
    SHUTDOWN = "shutdown"


class Counters:
    """Totals since the start, except `connections`, which is how many are open."""

    __slots__ = (
        "accepted",
        "bytes_in",
        "bytes_out",
        "closed_by",
        "connections",
        "requests",
        "sendfile_bytes",
        "sendfile_calls",
    )

    def __init__(self) -> None:
        self.connections = 0
        self.accepted = 0
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.sendfile_calls = 0
        self.sendfile_bytes = 0
        self.closed_by: dict[CloseReason, int] = dict.fromkeys(CloseReason, 0)

    def add(self, other: Counters) -> None:
        self.connections += other.connections
        self.accepted += other.accepted
        self.requests += other.requests
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.sendfile_calls += other.sendfile_calls
        self.sendfile_bytes += other.sendfile_bytes
        for reason, count in other.closed_by.items():
            self.closed_by[reason] += count
