"""The dispatcher without a network: frames go in, answers are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tests.support.handlers import FakeConnection, HandlerStage
from tidelog.broker.api_table import served
from tidelog.broker.dispatcher import RequestDispatcher
from tidelog.network.channel import SendTime
from tidelog.network.session import Principal
from tidelog.protocol.header import encode_request_header
from tidelog.record.file_records import FileRecords


class ClosableConnection(FakeConnection):
    def __init__(self) -> None:
        super().__init__()
        self.callbacks: list[Callable[[Any], object]] = []
        self.half_closed = False
        self.closing_lines: list[str] = []
        self.muted_s: list[float] = []

    def mute(self, seconds: float) -> None:
        self.muted_s.append(seconds)

    def add_close_callback(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    def authenticated(self, principal: Principal) -> None:
        self.session.principal = principal

    def log_closing(self, why: str) -> None:
        self.closing_lines.append(why)

    def vanish(self) -> None:
        for callback in self.callbacks:
            callback(self)


class RecordedRequest:
    """Stands in for IncomingRequest: keeps what it was answered."""

    def __init__(self, frame: bytes | bytearray, connection: ClosableConnection) -> None:
        self.frame = memoryview(bytearray(frame))
        self.received_at = 0.0
        self.connection = connection
        self.answered = asyncio.Event()
        self.answer: bytes | None = None
        self.closed: str | None = None
        self.lets_others_pass = False
        self.send_s = 0.0  # how long the answer takes to be sent

    def let_others_pass(self) -> None:
        self.lets_others_pass = True

    def respond(self, parts: Any, send_time: SendTime | None = None) -> None:
        self.answer = b"".join(
            part.read() if isinstance(part, FileRecords) else bytes(part) for part in parts
        )
        if send_time is not None:
            send_time.tell(self.send_s)
        self.answered.set()

    def respond_nothing(self) -> None:
        self.answer = b""
        self.answered.set()

    def close(self, reason: str) -> None:
        self.closed = reason
        self.answered.set()

    def refuse_client(self, parts: Any) -> None:
        self.respond(parts)
        self.closed = "refused"


class Dispatch:
    def __init__(self, stage: HandlerStage) -> None:
        self.dispatcher = RequestDispatcher(
            stage.broker, served(in_cluster=stage.broker.cluster is not None)
        )
        self.connection = ClosableConnection()

    def __call__(self, frame: bytes | bytearray) -> RecordedRequest:
        request = RecordedRequest(frame, self.connection)
        self.dispatcher.handle(cast(Any, request))
        return request

    def message(self, key: int, version: int, body: bytes | bytearray) -> RecordedRequest:
        return self(encode_request_header(key, version, 77, "test") + body)
