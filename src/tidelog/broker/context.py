"""What a handler is given, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tidelog.acls import CLUSTER_NAME
from tidelog.broker.authorized_operations import CLUSTER
from tidelog.pending import Pending
from tidelog.protocol.message import Message

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.quotas.client_quotas import Charge
    from tidelog.network.session import Principal, Session
    from tidelog.protocol.header import RequestHeader


class ClientConnection(Protocol):
    """What is seen here of a network.connection.Connection."""

    @property
    def session(self) -> Session: ...
    @property
    def half_closed(self) -> bool: ...
    def authenticated(self, principal: Principal) -> None: ...
    def log_closing(self, why: str) -> None: ...
    def add_close_callback(self, callback: Callable[[ClientConnection], object]) -> None: ...
    def mute(self, seconds: float) -> None: ...


class RequestContext:
    """One request: the broker it reached, the connection and session it came by, its header."""

    __slots__ = ("api_version", "broker", "charge", "connection", "header", "session")

    def __init__(self, broker: Broker, connection: ClientConnection, header: RequestHeader) -> None:
        self.broker = broker
        self.connection = connection
        self.session: Session = connection.session
        self.header = header
        self.api_version: int = header.api_version
        self.charge: Charge | None = None  # what it uses, where a quota is set

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    def mutate(self, partition_count: int, first_strict_version: int) -> None:
        """Before partitions are created or deleted. Raises KafkaError while the client is over its
        quota and the version knows the error.
        """
        if self.charge is not None:
            self.charge.mutate(partition_count, is_strict=self.api_version >= first_strict_version)

    # What the client may do: everything, where there is no authorizer.

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the client may do this with the resource. A denial is logged."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.may(self, operation, resource_type, name, True)

    def may_quietly(self, operation: int, resource_type: int, name: str) -> bool:
        """The same where a denial is no refusal, but decides what the answer shows."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.may(self, operation, resource_type, name, False)

    def may_on_cluster(self, operation: int) -> bool:
        return self.may(operation, CLUSTER, CLUSTER_NAME)

    def may_on_cluster_quietly(self, operation: int) -> bool:
        return self.may_quietly(operation, CLUSTER, CLUSTER_NAME)

    def may_on_any(self, operation: int, resource_type: int) -> bool:
        """Whether there may be a resource of the type with which the client may do this."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.may_on_any(self, operation, resource_type)

    def authorized_operations(self, among: int, resource_type: int, name: str) -> int:
        """The bits of those operations that the client may do with the resource."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return among
        return authorizer.operations(self, among, resource_type, name)


class CloseConnection:
    """A handler's answer where Kafka closes the connection instead of answering."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Response(Protocol):
    """A message, or one that is encoded already."""

    def encode(self, version: int) -> bytearray: ...


# None: the client expects no answer.
Answer: TypeAlias = Response | CloseConnection | None


class Handler(Protocol):
    """`handle` of a handler's module. The request is of the class that belongs to its API key; a
    test compares the annotations of every handler with this.

    A coroutine is for requests that wait for the metadata store, a Pending for all others that
    cannot be answered at once.
    """

    def __call__(
        self, context: RequestContext, request: Message, /
    ) -> Answer | Pending[Answer] | Coroutine[Any, Any, Answer]: ...
