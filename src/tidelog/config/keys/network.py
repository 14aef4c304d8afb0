"""Listeners, connections and sockets. The listeners are fixed while the broker runs."""

from __future__ import annotations

from typing import Final

from tidelog.config.definition import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LONG,
    LOW,
    STRING,
    Key,
    OneOf,
    at_least,
    harmless,
)

# Kafka has no limits unless they are set. These are far above what one broker serves well, and
# below what takes all of its file descriptors.
MAX_CONNECTIONS: Final = 50_000
MAX_CONNECTIONS_PER_IP: Final = 10_000

KEYS: Final = (
    Key(
        "advertised.listeners",
        STRING,
        None,
        "Addresses that clients are told to connect to, if they differ from listeners. "
        "0.0.0.0 cannot be advertised.",
        importance=HIGH,
    ),
    Key(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "Delay before a connection that failed to authenticate is closed.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "connections.max.idle.ms",
        LONG,
        600_000,
        "Idle time after which a connection is closed; a negative value closes none.",
    ),
    Key(
        "control.plane.listener.name",
        STRING,
        None,
        "Listener reserved for the controller's requests.",
        importance=HIGH,
        effect=harmless("The controller uses the inter-broker listener."),
    ),
    Key(
        "early.start.listeners",
        STRING,
        None,
        "Listeners opened before the authorizer is ready.",
        importance=HIGH,
        effect=harmless("There is no authorizer that a listener would have to wait for."),
    ),
    Key(
        "inter.broker.listener.name",
        STRING,
        None,
        "Name of the listener that brokers use among themselves; PLAINTEXT if left out.",
    ),
    Key(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name stands for, as NAME:PROTOCOL,...",
        importance=LOW,
    ),
    Key(
        "listeners",
        STRING,
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses to listen on, as NAME://host:port,... An empty host means all interfaces, "
        "port 0 any free port. Kafka's own default listens on all interfaces.",
        importance=HIGH,
    ),
    Key(
        "max.connection.creation.rate",
        INT,
        INT_MAX,
        "New connections a second that the broker accepts; others wait to be accepted.",
        valid=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "max.connections",
        INT,
        MAX_CONNECTIONS,
        "Open connections at most; further ones wait until another closes.",
        valid=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "max.connections.per.ip",
        INT,
        MAX_CONNECTIONS_PER_IP,
        "Open connections from one address at most; further ones are closed at once. 0 is for "
        "brokers with max.connections.per.ip.overrides.",
        valid=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other bounds for single hosts, as host:count,...",
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "num.network.threads",
        INT,
        1,
        "Network processors. With 1 the event loop itself reads and writes the sockets, which "
        "is fastest on few cores. Kafka's own default is 3.",
        valid=at_least(1),
        importance=HIGH,
    ),
    Key(
        "queued.max.request.bytes",
        LONG,
        -1,
        "Bytes of requests that may lie in memory before no more are read; -1 leaves the "
        "bound to the broker.",
    ),
    Key(
        "queued.max.requests",
        INT,
        500,
        "Requests that may wait for the handler before the network processors stop reading; with "
        "one of num.network.threads none wait.",
        valid=at_least(1),
        importance=HIGH,
    ),
    Key(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "Security protocol between brokers. Not together with inter.broker.listener.name.",
        valid=OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Key(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        "Longest wait for a connection to another broker to open, however often it has failed.",
    ),
    Key(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "First wait for a connection to another broker to open; doubles with each failure.",
    ),
    Key(
        "socket.listen.backlog.size",
        INT,
        50,
        "Connections that may wait to be accepted, at least 1024 (SOMAXCONN bounds it).",
        valid=at_least(1),
    ),
    Key(
        "socket.receive.buffer.bytes",
        INT,
        -1,
        "SO_RCVBUF of the sockets; -1 leaves it to the system.",
        importance=HIGH,
    ),
    Key(
        "socket.request.max.bytes",
        INT,
        104_857_600,
        "Largest request; a connection that announces a larger one is closed.",
        valid=at_least(1),
        importance=HIGH,
    ),
    Key(
        "socket.send.buffer.bytes",
        INT,
        262_144,
        "SO_SNDBUF of the sockets; -1 leaves it to the system.",
        importance=HIGH,
    ),
)
