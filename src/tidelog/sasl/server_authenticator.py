"""The broker's side of one connection that has to authenticate; without sockets.

It sees every frame of the connection before anything else does, and says what becomes of it:

    PASS       the request goes its usual way
    Reply      this is the answer, and the exchange goes on
    Failure    the connection is closed, after an answer if there is one

| state                         | frame                     | becomes                              |
|-------------------------------|---------------------------|--------------------------------------|
| INITIAL_REQUEST,              | ApiVersions               | PASS; HANDSHAKE_REQUEST              |
| HANDSHAKE_OR_VERSIONS_REQUEST | ApiVersions, a version    | PASS (the answer tells the versions);|
|                               | that is not served        | HANDSHAKE_OR_VERSIONS_REQUEST        |
| these, and HANDSHAKE_REQUEST  | SaslHandshake             | Reply; AUTHENTICATE                  |
|                               | of a mechanism that is    | Failure with the list of those that  |
|                               | not enabled               | are                                  |
|                               | anything else             | Failure                              |
| AUTHENTICATE after a v0       | a token, no header        | Reply or Failure; COMPLETE           |
| AUTHENTICATE after a v1       | SaslAuthenticate          | Reply or Failure; COMPLETE           |
|                               | anything else             | Failure                              |
| COMPLETE                      | SaslHandshake, where      | Reply; AUTHENTICATE or               |
|                               | sessions have an end      | REAUTH_BAD_MECHANISM                 |
|                               | anything before that end  | PASS                                 |
|                               | anything after it         | Failure                              |
| REAUTH_BAD_MECHANISM, FAILED  | anything                  | Failure                              |

States, order and words are those of Kafka's SaslServerAuthenticator. A client authenticates again
on the same connection (KIP-368) with the same mechanism and as the same user, at most once a
second. It is told when by `session_lifetime_ms`: connections.max.reauth.ms, or what is left of its
token if that is less.

Not done: GSSAPI, whose old clients send a token first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError, UnsupportedApi
from tidelog.protocol.header import RequestHeader, decode_request_header, encode_response_header
from tidelog.protocol.message import Message
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.sasl.mechanism import SaslRefusal, SaslServer

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.config.sasl import SaslListener

MIN_REAUTH_INTERVAL_S: Final = 1.0
_HANDSHAKE_KEY: Final = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


class State(Enum):
    INITIAL_REQUEST = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    REAUTH_BAD_MECHANISM = auto()
    FAILED = auto()


Parts = Sequence[bytes | bytearray]


class Pass(Enum):
    PASS = auto()


PASS: Final = Pass.PASS


class Reply(NamedTuple):
    parts: Parts


class Failure(NamedTuple):
    """`is_delayed`: somebody may be guessing, and has to wait for the end."""

    reason: str
    parts: Parts = ()
    is_delayed: bool = True


Step = Pass | Reply | Failure
NewServer = Callable[[str], SaslServer]  # by the name of an enabled mechanism


class SaslServerAuthenticator:
    def __init__(self, listener: SaslListener, new_server: NewServer, clock: Clock) -> None:
        self.state = State.INITIAL_REQUEST
        self.user: str | None = None  # who the client is; set when it has proved that
        self.max_receive_size = listener.max_receive_size
        self._listener = listener
        self._new_server = new_server
        self._clock = clock
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._has_headers = False  # tokens come in SaslAuthenticate requests
        self.is_token_authenticated = False  # by a delegation token
        self._lifetime_ms: int | None = None  # of the session, since the login
        self._expires_at: float | None = None  # clock.monotonic(), of a session that has an end
        self._reauth_began_at: float | None = None
        self._wrong_mechanism = ""

    @property
    def is_complete(self) -> bool:
        return self.state is State.COMPLETE

    def receive(self, frame: memoryview) -> Step:
        if self.state is State.COMPLETE:
            step = self._after_completion(frame)
        elif len(frame) > self.max_receive_size:
            step = Failure("Failing SASL authentication due to invalid receive size")
        elif self.state is State.AUTHENTICATE:
            step = self._on_token(frame)
        elif self.state is State.REAUTH_BAD_MECHANISM:
            step = Failure(
                f"SASL mechanism '{self._wrong_mechanism}' requested by client is not supported "
                f"for re-authentication of mechanism '{self._mechanism}'"
            )
        elif self.state is State.FAILED:
            step = Failure("a request after a failed authentication")
        else:
            step = self._on_request(frame)
        if isinstance(step, Failure):
            self.state = State.FAILED
            self._server = None
        return step

    def _after_completion(self, frame: memoryview) -> Step:
        if self._expires_at is None:
            return PASS
        now = self._clock.monotonic()
        if frame[:2] == _HANDSHAKE_KEY:
            began_at = self._reauth_began_at
            if began_at is not None and now - began_at < MIN_REAUTH_INTERVAL_S:
                return PASS  # answered by its handler: ILLEGAL_SASL_STATE
            self._reauth_began_at = now
            self._has_headers = False
            return self._on_request(frame)
        if now > self._expires_at:
            return Failure("its session has expired without re-authentication", is_delayed=False)
        return PASS

    # Before the tokens

    def _on_request(self, frame: memoryview) -> Step:
        is_first = self.state is State.INITIAL_REQUEST
        try:
            header = decode_request_header(frame)
        except UnsupportedApi as unsupported:
            if unsupported.api_key == ApiKey.API_VERSIONS and self._may_ask_versions:
                self.state = State.HANDSHAKE_OR_VERSIONS_REQUEST
                return PASS
            return Failure(
                f"api key {unsupported.api_key} version {unsupported.api_version} during SASL "
                "handshake"
            )
        except DecodeError as error:
            if is_first:
                return Failure("the first packet is no request, and GSSAPI is not supported")
            return Failure(f"bad request header: {error}")
        if header.api_key == ApiKey.API_VERSIONS:
            if not self._may_ask_versions:
                return Failure(
                    "Unexpected ApiVersions request received during SASL authentication state "
                    f"{self.state.name}"
                )
            self.state = State.HANDSHAKE_REQUEST
            return PASS
        if header.api_key != ApiKey.SASL_HANDSHAKE:
            name = ApiKey(header.api_key).name
            return Failure(f"Unexpected Kafka request of type {name} during SASL handshake.")
        return self._shake_hands(header, frame)

    @property
    def _may_ask_versions(self) -> bool:
        return self.state in (State.INITIAL_REQUEST, State.HANDSHAKE_OR_VERSIONS_REQUEST)

    def _shake_hands(self, header: RequestHeader, frame: memoryview) -> Step:
        try:
            request = SaslHandshakeRequest.decode(frame, header.body_position, header.api_version)
        except DecodeError as error:
            return Failure(f"SASL_HANDSHAKE v{header.api_version} does not parse: {error}")
        wanted, enabled = request.mechanism, self._listener.mechanisms
        if wanted not in enabled:
            refusal = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(enabled)
            )
            return Failure(f"Unsupported SASL mechanism {wanted!r}", _encode(header, refusal))
        self._has_headers = header.api_version >= 1
        if self.user is not None and wanted != self._mechanism:
            self._wrong_mechanism = wanted
            self.state = State.REAUTH_BAD_MECHANISM
        else:
            self._mechanism = wanted
            self._server = self._new_server(wanted)
            self.state = State.AUTHENTICATE
        return Reply(_encode(header, SaslHandshakeResponse(mechanisms=list(enabled))))

    # Tokens

    def _on_token(self, frame: memoryview) -> Step:
        if not self._has_headers:
            try:
                return Reply((self._evaluate(bytes(frame)),))
            except SaslRefusal as refusal:
                return Failure(str(refusal))
        try:
            header = decode_request_header(frame)
            if header.api_key != ApiKey.SASL_AUTHENTICATE:
                return self._on_other_request(header)
            request = SaslAuthenticateRequest.decode(
                frame, header.body_position, header.api_version
            )
        except (DecodeError, UnsupportedApi) as error:
            return Failure(f"no SaslAuthenticate request during SASL authentication: {error}")
        try:
            challenge = self._evaluate(bytes(request.auth_bytes))
        except SaslRefusal as refusal:
            told = self._generic_refusal if refusal.told is None else refusal.told
            answer = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told
            )
            return Failure(str(refusal), _encode(header, answer))
        answer = SaslAuthenticateResponse(
            auth_bytes=challenge,
            session_lifetime_ms=(self._lifetime_ms or 0) if self.is_complete else 0,
        )
        return Reply(_encode(header, answer))

    def _on_other_request(self, header: RequestHeader) -> Failure:
        name = ApiKey(header.api_key).name
        parts: Parts = ()
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            answer = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            parts = _encode(header, answer)
        return Failure(
            f"Unexpected Kafka request of type {name} during SASL authentication.", parts
        )

    def _evaluate(self, token: bytes) -> bytes:
        assert self._server is not None
        challenge = self._server.evaluate(token)
        user = self._server.user_or_none
        if user is not None:
            self._complete(user, self._server)
        return challenge

    def _complete(self, user: str, server: SaslServer) -> None:
        if self.user is not None and user != self.user:
            raise SaslRefusal(
                "Cannot change principals during re-authentication from "
                f"User.{self.user}: User.{user}",
                is_public=True,
            )
        self.user = user
        self.is_token_authenticated = server.is_token_authenticated
        self._server = None
        self.state = State.COMPLETE
        self._lifetime_ms = self._lifetime_of(server)
        self._expires_at = None
        if self._lifetime_ms is not None:
            self._expires_at = self._clock.monotonic() + self._lifetime_ms / 1000

    def _lifetime_of(self, server: SaslServer) -> int | None:
        """What bounds it first; None if nothing does. 0 if its token has just come to its end."""
        bounds = []
        max_reauth_ms = self._listener.max_reauth_ms.get(self._mechanism, 0)
        if max_reauth_ms > 0:
            bounds.append(max_reauth_ms)
        if server.credential_expires_at_ms is not None:
            bounds.append(max(0, server.credential_expires_at_ms - self._clock.time_ms()))
        return min(bounds, default=None)

    @property
    def _generic_refusal(self) -> str:
        """It must not tell whether the user exists."""
        what = "authentication" if self.user is None else "re-authentication"
        return (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )


def _encode(header: RequestHeader, answer: Message) -> Parts:
    version = header.api_version
    head = encode_response_header(header.correlation_id, header.api_key, version)
    return head, answer.encode(version)
