"""What the broker knows of the client at the other end of one connection.

A connection owns its session from accept to close, and every request that comes by it carries the
session in its RequestContext. Handlers ask the session who the client is and what it may do; they
do not look at the connection or its socket for that. Touched on the broker loop only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.sasl.server_authenticator import SaslServerAuthenticator


class Principal(NamedTuple):
    """Who a client has proved to be: Kafka's KafkaPrincipal."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
UNKNOWN_SOFTWARE: Final = "unknown"  # Kafka's word for a client that has not said what it is

# Kafka's AdminUtils.ADMIN_CLIENT_ID.
ADMIN_CLIENT_ID: Final = "__admin_client"


class Session:
    __slots__ = (
        "authenticator",
        "client_host",
        "client_port",
        "client_software_name",
        "client_software_version",
        "is_token_authenticated",
        "listener_name",
        "principal",
    )

    def __init__(self, listener_name: str, client_host: str, client_port: int) -> None:
        self.listener_name = listener_name
        self.client_host = client_host
        self.client_port = client_port
        # Set where the listener asks its clients who they are; it sees each frame first.
        self.authenticator: SaslServerAuthenticator | None = None
        self.principal = ANONYMOUS  # until the client has proved to be somebody
        self.is_token_authenticated = False  # by a delegation token of that principal
        # As ApiVersions v3 and later tell them.
        self.client_software_name = UNKNOWN_SOFTWARE
        self.client_software_version = UNKNOWN_SOFTWARE

    def may_append_to_internal_topics(self, client_id: str | None) -> bool:
        """Whether a Produce request with this client id may write to internal topics.

        Kafka keeps clients from writing to __consumer_offsets and __transaction_state by accident,
        and makes one exception: requests that call themselves `__admin_client`. A client id is a
        claim that nobody checks, so this guards against mistakes, not against an attacker.
        Each request has its own client id, therefore the caller passes it.
        """
        return client_id == ADMIN_CLIENT_ID
