"""What becomes of each frame in each state, in Kafka's order and words."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tidelog.config.sasl import SaslListener
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.header import encode_request_header, response_header_version
from tidelog.protocol.message import Message
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.protocol.registry import response_class
from tidelog.sasl.mechanism import SaslServer
from tidelog.sasl.plain import PlainServer
from tidelog.sasl.scram import PretendedCredentials, ScramClient, ScramServer
from tidelog.sasl.scram_credential import ScramCredential, ScramMechanism
from tidelog.sasl.server_authenticator import (
    PASS,
    Failure,
    Reply,
    SaslServerAuthenticator,
    State,
    Step,
)

USERS = {"alice": "secret", "bob": "other"}
SCRAM = ScramMechanism.SCRAM_SHA_256
SALTED = SCRAM.salted_password(b"secret", b"salt", 4096)
CREDENTIALS = {"alice": ScramCredential.of_salted_password(SCRAM, SALTED, b"salt", 4096)}
CORRELATION_ID = 77


def new_server(mechanism: str) -> SaslServer:
    if mechanism == "PLAIN":
        return PlainServer(USERS)
    return ScramServer(SCRAM, CREDENTIALS.get, PretendedCredentials(b""))


class Stage:
    def __init__(self, reauth_ms: int = 0, max_receive_size: int = 524_288) -> None:
        self.clock = FakeClock()
        mechanisms = ("PLAIN", "SCRAM-SHA-256")
        listener = SaslListener(mechanisms, max_receive_size, dict.fromkeys(mechanisms, reauth_ms))
        self.authenticator = SaslServerAuthenticator(listener, new_server, self.clock)

    def receive(self, frame: bytes | bytearray) -> Step:
        return self.authenticator.receive(memoryview(bytearray(frame)))

    def send(self, request: Message, version: int) -> Step:
        return self.receive(frame_of(request, version))

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Step:
        return self.send(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token: bytes, version: int = 2) -> Step:
        return self.send(SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, user: str = "alice") -> Any:
        self.handshake()
        return answer(self.token(f"\0{user}\0{USERS[user]}".encode()), ApiKey.SASL_AUTHENTICATE, 2)

    @property
    def state(self) -> State:
        return self.authenticator.state


def frame_of(request: Message, version: int) -> bytes:
    header = encode_request_header(request.API_KEY, version, CORRELATION_ID, "test")
    return bytes(header + request.encode(version))


def answer(step: Step, api_key: ApiKey, version: int) -> Any:
    assert isinstance(step, Reply | Failure), step
    data = memoryview(b"".join(bytes(part) for part in step.parts))
    assert data[:4] == CORRELATION_ID.to_bytes(4, "big")
    position = 4 + response_header_version(api_key, version)
    return response_class(api_key).decode(data, position, version)


API_VERSIONS = frame_of(ApiVersionsRequest(client_software_name="x"), 3)
NEWER_API_VERSIONS = b"\0\x12\x7f\xff\0\0\0\x4d\xff\xff"
METADATA = frame_of(MetadataRequest(topics=[]), 5)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_of_plain_is_known_after_one_token(version: int) -> None:
    stage = Stage()
    assert stage.receive(API_VERSIONS) is PASS
    shaken = answer(stage.handshake(), ApiKey.SASL_HANDSHAKE, 1)
    assert (shaken.error_code, shaken.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
    done = answer(stage.token(b"\0alice\0secret", version), ApiKey.SASL_AUTHENTICATE, version)
    assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (0, b"", 0)
    assert (stage.state, stage.authenticator.user) == (State.COMPLETE, "alice")
    assert stage.receive(METADATA) is PASS


def test_scram_takes_two_tokens() -> None:
    stage, client = Stage(), ScramClient(SCRAM, "alice", "secret")
    stage.handshake("SCRAM-SHA-256")
    first = answer(stage.token(client.evaluate(b"")), ApiKey.SASL_AUTHENTICATE, 2)
    final = answer(stage.token(client.evaluate(first.auth_bytes)), ApiKey.SASL_AUTHENTICATE, 2)
    client.evaluate(final.auth_bytes)
    assert client.is_complete
    assert stage.authenticator.user == "alice"


def test_after_a_handshake_of_version_0_tokens_are_bare() -> None:
    stage, client = Stage(), ScramClient(SCRAM, "alice", "secret")
    stage.handshake("SCRAM-SHA-256", version=0)
    first = stage.receive(client.evaluate(b""))
    assert isinstance(first, Reply)
    final = stage.receive(client.evaluate(bytes(first.parts[0])))
    assert isinstance(final, Reply)
    client.evaluate(bytes(final.parts[0]))
    assert stage.authenticator.user == "alice"


def test_a_bare_token_that_is_wrong_gets_no_answer() -> None:
    stage = Stage()
    stage.handshake(version=0)
    step = stage.receive(b"\0alice\0wrong")
    assert step == Failure("Authentication failed: Invalid username or password")


def test_a_bare_token_may_look_like_a_request() -> None:
    stage = Stage()
    stage.handshake(version=0)
    assert isinstance(stage.receive(METADATA), Failure)


def test_an_unknown_mechanism_is_refused_with_the_list() -> None:
    stage = Stage()
    step = stage.handshake("GSSAPI")
    assert isinstance(step, Failure)
    refused = answer(step, ApiKey.SASL_HANDSHAKE, 1)
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert refused.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert stage.state is State.FAILED


def test_what_plain_refuses_is_told_and_what_scram_refuses_is_not() -> None:
    stage = Stage()
    stage.handshake()
    step = stage.token(b"\0alice\0wrong")
    assert isinstance(step, Failure)
    assert step.is_delayed
    refused = answer(step, ApiKey.SASL_AUTHENTICATE, 2)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == "Authentication failed: Invalid username or password"

    told = set()
    for user in ("alice", "nobody"):
        stage, client = Stage(), ScramClient(SCRAM, user, "wrong")
        stage.handshake("SCRAM-SHA-256")
        first = answer(stage.token(client.evaluate(b"")), ApiKey.SASL_AUTHENTICATE, 2)
        step = stage.token(client.evaluate(first.auth_bytes))
        assert isinstance(step, Failure)
        assert user in step.reason
        told.add(answer(step, ApiKey.SASL_AUTHENTICATE, 2).error_message)
    assert told == {
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256"
    }


def test_versions_may_be_asked_again_after_one_that_is_not_served() -> None:
    stage = Stage()
    assert stage.receive(NEWER_API_VERSIONS) is PASS
    assert stage.receive(NEWER_API_VERSIONS) is PASS
    assert stage.receive(API_VERSIONS) is PASS
    assert isinstance(stage.receive(API_VERSIONS), Failure)


def test_another_request_before_the_handshake_is_refused_without_being_decoded() -> None:
    stage = Stage()
    frame = encode_request_header(ApiKey.METADATA, 5, 1, None) + b"does not parse"
    step = stage.receive(frame)
    assert step == Failure("Unexpected Kafka request of type METADATA during SASL handshake.")


def test_a_second_handshake_is_answered_with_illegal_sasl_state() -> None:
    stage = Stage()
    stage.handshake()
    step = stage.handshake()
    assert isinstance(step, Failure)
    refused = answer(step, ApiKey.SASL_HANDSHAKE, 1)
    assert (refused.error_code, refused.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\x60\x82\x02\x6f" + b"\1" * 90, b"\xff" * 30],
)
def test_garbage_is_refused_in_every_state(garbage: bytes) -> None:
    first, later = Stage(), Stage()
    assert isinstance(first.receive(garbage), Failure)
    later.handshake()
    assert isinstance(later.receive(garbage), Failure)


def test_a_frame_above_the_limit_is_refused() -> None:
    stage = Stage(max_receive_size=100)
    stage.handshake()
    step = stage.token(b"x" * 100)
    assert step == Failure("Failing SASL authentication due to invalid receive size")


def test_nothing_passes_after_a_failure() -> None:
    stage = Stage()
    stage.handshake()
    stage.token(b"\0alice\0wrong")
    for frame in (API_VERSIONS, METADATA, frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1)):
        assert isinstance(stage.receive(frame), Failure)
    assert isinstance(stage.token(b"\0alice\0secret"), Failure)


FRAMES = {
    "versions": API_VERSIONS,
    "newer": NEWER_API_VERSIONS,
    "metadata": METADATA,
    "handshake": frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    "handshake0": frame_of(SaslHandshakeRequest(mechanism="PLAIN"), 0),
    "other": frame_of(SaslHandshakeRequest(mechanism="GSSAPI"), 1),
    "right": frame_of(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2),
    "wrong": frame_of(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2),
    "bare": b"\0alice\0secret",
}


def allowed(order: tuple[str, ...]) -> bool:
    """An independent reading: which orders make a client known, after which everything passes."""
    rest = list(order)
    while rest and rest[0] == "newer":
        rest.pop(0)
    if rest and rest[0] == "versions":
        rest.pop(0)
    return rest[:2] in (["handshake", "right"], ["handshake0", "bare"])


def test_in_every_order_of_frames_only_the_right_ones_let_a_request_pass() -> None:
    for order in product(FRAMES, repeat=4):
        stage = Stage()
        for name in order:
            step = stage.receive(FRAMES[name])
            if name == "metadata" and step is PASS:
                assert stage.authenticator.user == "alice", order
        if stage.authenticator.user is not None:
            assert any(allowed(order[:end]) for end in range(5)), order
        else:
            assert not allowed(order), order


class TestReauthentication:
    """KIP-368."""

    def test_the_client_is_told_how_long_its_session_lasts(self) -> None:
        assert Stage(reauth_ms=60_000).log_in().session_lifetime_ms == 60_000

    def test_a_session_that_was_not_renewed_ends_with_the_next_request(self) -> None:
        stage = Stage(reauth_ms=60_000)
        stage.log_in()
        stage.clock.advance(ms=60_000)
        assert stage.receive(METADATA) is PASS
        stage.clock.advance(ms=1)
        step = stage.receive(METADATA)
        assert isinstance(step, Failure)
        assert not step.is_delayed
        assert isinstance(stage.receive(METADATA), Failure)

    def test_a_renewed_session_lasts_as_long_again(self) -> None:
        stage = Stage(reauth_ms=60_000)
        stage.log_in()
        for _ in range(3):
            stage.clock.advance(ms=50_000)
            assert stage.log_in().error_code == 0
            assert stage.receive(METADATA) is PASS

    def test_an_expired_session_may_still_be_renewed(self) -> None:
        stage = Stage(reauth_ms=60_000)
        stage.log_in()
        stage.clock.advance(ms=90_000)
        assert stage.log_in().error_code == 0
        assert stage.receive(METADATA) is PASS

    def test_nobody_becomes_somebody_else(self) -> None:
        stage = Stage(reauth_ms=60_000)
        stage.log_in("alice")
        stage.clock.advance(ms=50_000)
        refused = stage.log_in("bob")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "from User.alice: User.bob" in refused.error_message
        assert stage.authenticator.user == "alice"
        assert isinstance(stage.receive(METADATA), Failure)

    def test_the_mechanism_stays(self) -> None:
        stage = Stage(reauth_ms=60_000)
        stage.log_in()
        stage.clock.advance(ms=50_000)
        shaken = answer(stage.handshake("SCRAM-SHA-256"), ApiKey.SASL_HANDSHAKE, 1)
        assert shaken.error_code == 0
        step = stage.token(b"\0alice\0secret")
        assert isinstance(step, Failure)
        assert "for re-authentication of mechanism 'PLAIN'" in step.reason

    def test_other_requests_have_to_wait_for_its_end(self) -> None:
        stage = Stage(reauth_ms=60_000)
        stage.log_in()
        stage.clock.advance(ms=50_000)
        stage.handshake()
        assert isinstance(stage.receive(METADATA), Failure)

    def test_it_is_refused_more_than_once_a_second(self) -> None:
        stage = Stage(reauth_ms=60_000)
        stage.log_in()
        stage.log_in()
        stage.clock.advance(ms=999)
        assert stage.handshake() is PASS  # its handler answers ILLEGAL_SASL_STATE
        stage.clock.advance(ms=1)
        assert isinstance(stage.handshake(), Reply)

    def test_without_a_lifetime_a_handshake_has_its_usual_answer(self) -> None:
        stage = Stage()
        stage.log_in()
        assert stage.handshake() is PASS
