"""What a SASL mechanism is at either end, and how it refuses.

A server evaluates what a client sends and answers with a challenge; a client evaluates a challenge
and answers with a response. Each end is used for one exchange.
"""

from __future__ import annotations

from typing import Protocol


class SaslRefusal(Exception):
    """The exchange has failed. `is_public`: its message may be told to the peer as it is.

    What is not public may say whether a user exists; it goes to the broker's log alone. `told` are
    other words for the peer.
    """

    def __init__(self, message: str, *, is_public: bool = False, told: str | None = None) -> None:
        super().__init__(message)
        self.told = message if is_public else told


class SaslServer(Protocol):
    @property
    def user_or_none(self) -> str | None:
        """Who the client has proved to be; None until then."""

    @property
    def credential_expires_at_ms(self) -> int | None:
        """When what it has proved that with ends, by the wall clock; None if it does not."""

    @property
    def is_token_authenticated(self) -> bool:
        """Whether it has a delegation token of that user, and not the user's own credential."""

    def evaluate(self, response: bytes) -> bytes:
        """The next challenge; SaslRefusal ends the exchange."""


class SaslClient(Protocol):
    @property
    def mechanism(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    def evaluate(self, challenge: bytes) -> bytes:
        """The next response, the first to an empty challenge; SaslRefusal ends the exchange.

        May take milliseconds of a processor, and is called in a thread.
        """
