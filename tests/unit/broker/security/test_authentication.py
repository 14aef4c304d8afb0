"""The step that asks clients who they are: what it lets through, and how failures are delayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dispatch import ClosableConnection, Dispatch, RecordedRequest
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.security import authentication
from tidelog.config.sasl import SaslListener
from tidelog.network.session import ANONYMOUS, Principal
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.sasl.plain import PlainServer
from tidelog.sasl.server_authenticator import SaslServerAuthenticator

METADATA = MetadataRequest(topics=[]).encode(5)
VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1").encode(3)


class Client:
    """One connection to a listener with SASL."""

    def __init__(self, stage: HandlerStage, dispatch: Dispatch, *, reauth_ms: int = 0) -> None:
        self._dispatch = dispatch
        self.connection = ClosableConnection()
        self.connection.session.authenticator = SaslServerAuthenticator(
            SaslListener(("PLAIN",), max_reauth_ms={"PLAIN": reauth_ms}),
            lambda _: PlainServer({"alice": "secret"}),
            stage.clock,
        )

    def send(self, key: int, version: int, body: bytes | bytearray) -> RecordedRequest:
        self._dispatch.connection = self.connection
        return self._dispatch.message(key, version, body)

    def handshake(self) -> RecordedRequest:
        request = SaslHandshakeRequest(mechanism="PLAIN")
        return self.send(ApiKey.SASL_HANDSHAKE, 1, request.encode(1))

    def log_in(self, password: str = "secret") -> RecordedRequest:
        self.handshake()
        request = SaslAuthenticateRequest(auth_bytes=f"\0alice\0{password}".encode())
        return self.send(ApiKey.SASL_AUTHENTICATE, 2, request.encode(2))

    def metadata(self) -> RecordedRequest:
        return self.send(ApiKey.METADATA, 5, METADATA)


@in_loop
async def test_requests_pass_once_the_client_is_known(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, Dispatch(stage))
        assert client.send(ApiKey.API_VERSIONS, 3, VERSIONS).answer is not None
        assert client.connection.session.principal == ANONYMOUS
        assert client.log_in().answer is not None
        assert client.connection.session.principal == Principal("User", "alice")
        assert client.metadata().answer is not None
        assert client.connection.closing_lines == []


@in_loop
async def test_a_failure_is_logged_at_once_and_answered_after_the_delay(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, Dispatch(stage))
        request = client.log_in("wrong")
        line = "failed authentication: Authentication failed: Invalid username or password"
        assert client.connection.closing_lines == [line]
        stage.clock.advance(ms=99)
        assert (request.answer, request.closed) == (None, None)
        stage.clock.advance(ms=1)
        assert request.answer is not None
        told = SaslAuthenticateResponse.decode(memoryview(request.answer), 5, 2)
        assert told.error_message == "Authentication failed: Invalid username or password"
        assert request.closed == "refused"
        assert client.connection.closing_lines == [line]
        assert client.connection.session.principal == ANONYMOUS


@in_loop
async def test_without_a_delay_a_failure_is_answered_at_once(tmp_path: Path) -> None:
    async with handler_stage(
        tmp_path, **{"connection.failed.authentication.delay.ms": "0"}
    ) as stage:
        assert Client(stage, Dispatch(stage)).metadata().closed == "refused"


@in_loop
async def test_a_stranger_has_no_message_decoded(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, Dispatch(stage))
        request = client.send(ApiKey.METADATA, 5, b"does not parse")
        stage.clock.advance(ms=100)
        assert (request.answer, request.closed) == (b"", "refused")


@in_loop
async def test_an_expired_session_ends_at_once(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, Dispatch(stage), reauth_ms=1000)
        client.log_in()
        stage.clock.advance(ms=1001)
        assert client.metadata().closed == "refused"
        assert client.connection.closing_lines == [
            "its session has expired without re-authentication"
        ]


@in_loop
async def test_a_handshake_after_the_login_is_answered_by_its_handler(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, Dispatch(stage))
        client.log_in()
        request = client.handshake()
        assert request.answer is not None
        told = SaslHandshakeResponse.decode(memoryview(request.answer), 4, 1)
        assert (told.error_code, told.mechanisms) == (34, [])


@in_loop
async def test_only_so_many_failures_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "DELAYED_MAX", 3)
    async with handler_stage(tmp_path) as stage:
        dispatch = Dispatch(stage)
        requests = [Client(stage, dispatch).log_in("wrong") for _ in range(5)]
        assert [request.closed for request in requests] == ["refused"] * 2 + [None] * 3
        stage.clock.advance(ms=100)
        assert [request.closed for request in requests] == ["refused"] * 5


@in_loop
async def test_a_stop_of_the_broker_ends_the_wait(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        dispatch = Dispatch(stage)
        request = Client(stage, dispatch).log_in("wrong")
        dispatch.dispatcher.wake_waiting()
        assert request.closed == "refused"
        stage.clock.advance(ms=100)


@in_loop
async def test_a_long_name_makes_a_short_line(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage, Dispatch(stage))
        body = SaslHandshakeRequest(mechanism="x" * 30_000).encode(1)
        client.send(ApiKey.SASL_HANDSHAKE, 1, body)
        (line,) = client.connection.closing_lines
        assert len(line) < 400
