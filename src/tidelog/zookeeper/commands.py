"""ZooKeeper's four-letter words: a connection that begins with one gets text, and ends.

Served are those that look at the server: conf, cons, envi, isro, mntr, ruok, srvr, stat. The others
are refused in the words with which a ZooKeeper refuses what is not in its whitelist.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidelog import __version__

if TYPE_CHECKING:
    from tidelog.zookeeper.server import EmbeddedZooKeeper

COMMAND_BYTES: Final = 4
# Clients look at the number to see what a server can do.
VERSION: Final = f"3.8.4-tidelog-{__version__}, built on 2024-01-01 00:00 UTC"
NOT_SERVED: Final = frozenset(
    {b"crst", b"dirs", b"dump", b"gtmk", b"hash", b"lead", b"srst", b"stmk"}
    | {b"wchc", b"wchp", b"wchs"}
)


def answer_to(word: bytes, server: EmbeddedZooKeeper) -> bytes | None:
    """None if it is no command."""
    if word in NOT_SERVED:
        name = word.decode()
        return f"{name} is not executed because it is not in the whitelist.\n".encode()
    command = _COMMANDS.get(word)
    return None if command is None else command(server).encode()


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ruok(server: EmbeddedZooKeeper) -> str:
    return "imok"


def _isro(server: EmbeddedZooKeeper) -> str:
    return "rw"


def _counts(server: EmbeddedZooKeeper) -> tuple[int, int]:
    """Packets received and sent."""
    received = server.received_count + sum(c.received_count for c in server.connections)
    return received, server.sent_count + sum(c.sent_count for c in server.connections)


def _srvr(server: EmbeddedZooKeeper) -> str:
    return f"Zookeeper version: {VERSION}\n{_state(server)}"


def _state(server: EmbeddedZooKeeper) -> str:
    received, sent = _counts(server)
    tree = server.database.tree
    return _lines(
        (
            "Latency min/avg/max: 0/0.0/0",
            f"Received: {received}",
            f"Sent: {sent}",
            f"Connections: {len(server.connections)}",
            f"Outstanding: {server.database.waiting_count}",
            f"Zxid: 0x{tree.zxid:x}",
            "Mode: standalone",
            f"Node count: {len(tree.nodes)}",
        )
    )


def _stat(server: EmbeddedZooKeeper) -> str:
    clients = _lines(
        f" /{c.peer[0]}:{c.peer[1]}[1](queued=0,recved={c.received_count},sent={c.sent_count})"
        for c in server.connections
    )
    return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n{_state(server)}"


def _cons(server: EmbeddedZooKeeper) -> str:
    return (
        _lines(
            f" /{c.peer[0]}:{c.peer[1]}[1](queued=0,recved={c.received_count},"
            f"sent={c.sent_count},sid=0x{c.session.id:x},to={c.session.timeout_ms})"
            for c in server.connections
            if c.session is not None
        )
        + "\n"
    )


def _mntr(server: EmbeddedZooKeeper) -> str:
    received, sent = _counts(server)
    tree = server.database.tree
    rows: dict[str, object] = {
        "version": VERSION,
        "server_state": "standalone",
        "avg_latency": "0.0",
        "max_latency": 0,
        "min_latency": 0,
        "packets_received": received,
        "packets_sent": sent,
        "num_alive_connections": len(server.connections),
        "outstanding_requests": server.database.waiting_count,
        "znode_count": len(tree.nodes),
        "watch_count": server.watches.count,
        "ephemerals_count": sum(map(len, tree.ephemerals.values())),
        "global_sessions": len(server.tracker.sessions),
    }
    return _lines(f"zk_{key}\t{value}" for key, value in rows.items())


def _conf(server: EmbeddedZooKeeper) -> str:
    from tidelog.zookeeper.server import (
        CONNECTIONS_MAX,
        SESSION_TIMEOUT_MS_MAX,
        SESSION_TIMEOUT_MS_MIN,
    )

    return _lines(
        (
            f"clientPort={server.port}",
            f"dataDir={server.directory}",
            f"maxCnxns={CONNECTIONS_MAX}",
            f"minSessionTimeout={SESSION_TIMEOUT_MS_MIN}",
            f"maxSessionTimeout={SESSION_TIMEOUT_MS_MAX}",
            "serverId=0",
        )
    )


def _envi(server: EmbeddedZooKeeper) -> str:
    return _lines(
        (
            "Environment:",
            f"zookeeper.version={VERSION}",
            f"host.name={socket.gethostname()}",
            f"python.version={platform.python_version()}",
            f"os.name={platform.system()}",
            f"os.arch={platform.machine()}",
            f"os.version={platform.release()}",
            f"user.dir={os.getcwd()}",
        )
    )


_COMMANDS: Final[dict[bytes, Callable[[EmbeddedZooKeeper], str]]] = {
    b"conf": _conf,
    b"cons": _cons,
    b"envi": _envi,
    b"isro": _isro,
    b"mntr": _mntr,
    b"ruok": _ruok,
    b"srvr": _srvr,
    b"stat": _stat,
}
