"""The limits within which the network layer serves.

Field names are Kafka's keys; where a name differs the key stands beside it. -1 means "no limit" or
"leave it to the operating system", as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.tls.settings import TlsSettings

KIB = 1024
MIB = 1024 * KIB
UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    request_max_bytes: int = 100 * MIB  # socket.request.max.bytes
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connections_per_listener: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED  # a second
    max_connection_creation_rate_per_listener: Mapping[str, int] = field(default_factory=dict)
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    inter_broker_listener_name: str | None = None
    connections_max_idle_ms: int = 600_000
    queued_max_requests: int = 500
    network_threads: int = 1  # num.network.threads
    send_buffer_bytes: int = -1  # socket.send.buffer.bytes
    receive_buffer_bytes: int = -1  # socket.receive.buffer.bytes
    backlog: int = 50  # socket.listen.backlog.size
    tls: Mapping[str, TlsSettings] = field(default_factory=dict)  # of every listener with TLS
    # How long a client may take for its part of a TLS handshake.
    handshake_timeout_ms: int = 10_000

    # Unsent answer bytes (file bytes too) above which a connection's next request has to wait.
    connection_bytes_in_flight_max: int = 1 * MIB
    # Memory of all connections: request bytes held plus answer bytes queued, files not counted
    # (queued.max.request.bytes where that is set; -1 is no bound).
    bytes_in_flight_max: int = 256 * MIB
    # While memory is short: how long a peer that holds much may move no byte, and how long the
    # one connection that may read past the bound has to finish its frame.
    memory_stall_ms: int = 2_000
    memory_favour_ms: int = 30_000
