"""The far side of a peer connection, played by a test: it takes requests and answers when told."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Any

from tidelog.protocol.header import RequestHeader, decode_request_header, encode_response_header
from tidelog.protocol.message import Message
from tidelog.protocol.registry import request_class


class PeerStage:
    """A server on a free port of this machine, for one connection after another."""

    def __init__(self) -> None:
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._came = asyncio.Event()
        self.host = "127.0.0.1"
        self.port = 0

    async def start(self, tls: ssl.SSLContext | None = None) -> PeerStage:
        self._server = await asyncio.start_server(self._on_connect, self.host, self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()

    def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._reader, self._writer = reader, writer
        self._came.set()

    async def take(self) -> tuple[RequestHeader, Any]:
        """The next request."""
        await self._came.wait()
        assert self._reader is not None
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = memoryview(await self._reader.readexactly(size))
        header = decode_request_header(frame)
        request = request_class(header.api_key).decode(
            frame, header.body_position, header.api_version
        )
        return header, request

    def answer(self, header: RequestHeader, response: Message) -> None:
        head = encode_response_header(header.correlation_id, header.api_key, header.api_version)
        self.send_frame(head + bytes(response.encode(header.api_version)))

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._came.clear()
