"""What a handler is given besides the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.network.connection import Connection
    from tidelog.network.session import Session
    from tidelog.protocol.header import RequestHeader


class RequestContext:
    """One request: the broker it reached, the connection and session it came by, its header."""

    __slots__ = ("api_version", "broker", "connection", "header", "session")

    def __init__(self, broker: Broker, connection: Connection, header: RequestHeader) -> None:
        self.broker = broker
        self.connection = connection
        self.session: Session = connection.session
        self.header = header
        self.api_version: int = header.api_version

    @property
    def client_id(self) -> str | None:
        return self.header.client_id


class CloseConnection:
    """A handler's answer where Kafka closes the connection instead of answering."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason
