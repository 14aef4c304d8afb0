"""A process that carries bytes between the parties of a cluster, and drops what it is told to.

A link is a port here and the port it stands for. Its parties have names: the sink is the one that
listens, the source the one that connects. Where many parties connect to one port, a connection
belongs to the broker that the client id of its first request names. Over TLS nobody can read that:
there it belongs to the broker whose process has the other end.

    block A B     what A sends to B is held, as packets that are lost and sent again: nobody is
                  told, and ends of connections are not seen either
    sever A B     connections between A and B are reset, and so are new ones
    heal          everything flows; what was held arrives

The links come as JSON in the first argument, their ports leave as a JSON line; commands come as
lines on stdin, each answered with a line. Ends with its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from typing import NamedTuple

import psutil

CLIENT_ID_OF_BROKER = re.compile(rb"(?:broker|controller)-(\d+)")
BROKER_ID_OF_COMMAND = re.compile(r"broker\.id=(\d+)")
STRANGER = "stranger"
TLS_HANDSHAKE = 0x16  # first byte; that of a request's size is 0
HEADER_BYTES = 14  # size, api key, version, correlation id, length of the client id
HELD_BYTES_MAX = 1 << 20


class LinkPlan(NamedTuple):
    source: str | None  # None: as the first request says
    sink: str
    port: int


def broker_at(port: int) -> str:
    """The name of the broker on this machine that has connected from the port."""
    for connection in psutil.net_connections("tcp4"):
        if connection.laddr and connection.laddr.port == port and connection.pid is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                command = " ".join(psutil.Process(connection.pid).cmdline())
                found = BROKER_ID_OF_COMMAND.search(command)
                if found:
                    return f"broker-{found[1]}"
    return STRANGER


class Wires:
    """What is blocked and severed, and all connections that this concerns."""

    def __init__(self) -> None:
        self.blocked: set[tuple[str, str]] = set()
        self.severed: set[frozenset[str]] = set()
        self.connections: set[Connection] = set()

    def obey(self, command: str) -> None:
        verb, *parties = command.split()
        if verb == "block":
            source, sink = parties
            self.blocked.add((source, sink))
        elif verb == "sever":
            self.severed.add(frozenset(parties))
        elif verb == "heal":
            self.blocked.clear()
            self.severed.clear()
        else:
            raise ValueError(command)
        for connection in tuple(self.connections):
            connection.apply()


class End(asyncio.Protocol):
    """One end of a connection, as the relay holds it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport: asyncio.Transport
        self.other: End | None = None
        self.is_blocked = False
        self.is_choked = False  # the other end does not take what this one says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connection.made(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.connection.introduced(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.connection.lost()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.listen(is_choked=True)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.listen(is_choked=False)

    def listen(self, *, is_blocked: bool | None = None, is_choked: bool | None = None) -> None:
        self.is_blocked = self.is_blocked if is_blocked is None else is_blocked
        self.is_choked = self.is_choked if is_choked is None else is_choked
        if self.transport.is_closing():
            return
        if self.is_blocked or self.is_choked:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()


class Connection:
    """From a source to a sink; the far end is made when the way there is free."""

    def __init__(self, plan: LinkPlan, wires: Wires) -> None:
        self._plan = plan
        self._wires = wires
        self._source = plan.source
        self._near = End(self)
        self._far: End | None = None
        self._held = b""
        self._connecting: asyncio.Task[None] | None = None

    @property
    def near(self) -> End:
        return self._near

    def made(self, end: End) -> None:
        if end is self._near:
            self._wires.connections.add(self)
            self.apply()

    def introduced(self, data: bytes) -> None:
        """The first bytes, of a source that is known by them or is connected still."""
        self._held += data
        if self._source is None and self._held[0] == TLS_HANDSHAKE:
            self._source = broker_at(self._near.transport.get_extra_info("peername")[1])
            self.apply()
        elif self._source is None and len(self._held) >= HEADER_BYTES:
            length = int.from_bytes(self._held[HEADER_BYTES - 2 : HEADER_BYTES], "big")
            if len(self._held) >= HEADER_BYTES + length:
                found = CLIENT_ID_OF_BROKER.match(self._held, HEADER_BYTES)
                self._source = f"broker-{found[1].decode()}" if found else STRANGER
                self.apply()
        if len(self._held) > HELD_BYTES_MAX:
            self._near.listen(is_choked=True)

    def apply(self) -> None:
        source, sink, wires = self._source, self._plan.sink, self._wires
        if source is None:
            return
        if frozenset((source, sink)) in wires.severed:
            self._abort()
            return
        self._near.listen(is_blocked=(source, sink) in wires.blocked)
        is_answer_blocked = (sink, source) in wires.blocked
        if self._far is not None:
            self._far.listen(is_blocked=is_answer_blocked)
        elif self._connecting is None and not self._near.is_blocked and not is_answer_blocked:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        far = End(self)
        far.other = self._near
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: far, "127.0.0.1", self._plan.port)
        except OSError:
            self._abort()
            return
        if self not in self._wires.connections:
            far.transport.abort()
            return
        self._far, self._near.other = far, far
        far.transport.write(self._held)
        self._held = b""
        self._near.listen(is_choked=False)
        self.apply()

    def lost(self) -> None:
        """One end is gone; what it has said still arrives."""
        self._wires.connections.discard(self)
        for end in (self._near, self._far):
            if end is not None:
                end.transport.close()

    def _abort(self) -> None:
        self._wires.connections.discard(self)
        for end in (self._near, self._far):
            if end is not None:
                end.transport.abort()


async def relay(plans: list[LinkPlan]) -> None:
    loop = asyncio.get_running_loop()
    wires = Wires()
    ports = []
    for plan in plans:
        server = await loop.create_server(
            lambda plan=plan: Connection(plan, wires).near,  # type: ignore[misc]
            "127.0.0.1",
            0,
        )
        ports.append(server.sockets[0].getsockname()[1])
    say(json.dumps(ports))
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        wires.obey(line.decode())
        say("done")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(relay([LinkPlan(*plan) for plan in json.loads(sys.argv[1])]))
