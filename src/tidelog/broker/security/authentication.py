"""The step of a request that asks who the client is, for listeners with SASL.

The connection's authenticator (`sasl/server_authenticator.py`) decides; this carries it out. A
client that has failed gets its answer, and loses its connection, after
connection.failed.authentication.delay.ms, so that guessing takes time. Until then the connection
waits unread. At most DELAYED_MAX wait so; one more ends the wait of the oldest.

The reason goes to the log once, and into the answer only where it tells nothing about users.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.network.session import Principal
from tidelog.sasl.server_authenticator import PASS, Failure, SaslServerAuthenticator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.broker import Broker
    from tidelog.broker.context import ClientConnection
    from tidelog.clock import TimerHandle
    from tidelog.network.channel import Part

DELAYED_MAX: Final = 1_000
REASON_CHARACTERS_MAX: Final = 300  # a name may be as long as a frame


class Request(Protocol):
    """What is done here with a network.connection.IncomingRequest."""

    @property
    def frame(self) -> memoryview: ...
    @property
    def connection(self) -> ClientConnection: ...
    def respond(self, parts: Sequence[Part]) -> None: ...
    def refuse_client(self, parts: Sequence[Part]) -> None: ...


class Authentication:
    """Touched only on the broker loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # In the order in which they have failed.
        self._delayed: dict[Request, tuple[Failure, TimerHandle]] = {}

    def admits(self, request: Request, authenticator: SaslServerAuthenticator) -> bool:
        """Whether the request goes on; if not, it is answered here."""
        step = authenticator.receive(request.frame)
        if step is PASS:
            return True
        if isinstance(step, Failure):
            self._refuse(request, step)
            return False
        if authenticator.is_complete and authenticator.user is not None:
            connection = request.connection
            connection.authenticated(Principal("User", authenticator.user))
            connection.session.is_token_authenticated = authenticator.is_token_authenticated
        request.respond(step.parts)
        return False

    def _refuse(self, request: Request, failure: Failure) -> None:
        what = "failed authentication: " if failure.is_delayed else ""
        request.connection.log_closing(f"{what}{failure.reason:.{REASON_CHARACTERS_MAX}}")
        delay_ms = self._broker.config["connection.failed.authentication.delay.ms"]
        if not failure.is_delayed or delay_ms <= 0:
            request.refuse_client(failure.parts)
            return
        if len(self._delayed) >= DELAYED_MAX:
            self._end(next(iter(self._delayed)))
        timer = self._broker.timer.call_later(delay_ms / 1000, partial(self._end, request))
        self._delayed[request] = failure, timer

    def _end(self, request: Request) -> None:
        failure, timer = self._delayed.pop(request)
        timer.cancel()
        request.refuse_client(failure.parts)

    def end_delays(self) -> None:
        """At the stop of the broker."""
        for request in list(self._delayed):
            self._end(request)
