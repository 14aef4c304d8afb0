"""A real broker with SASL: whom other people's clients are, and who gets nowhere."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import StartBroker
from tests.support import secured_clients
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedByBroker, RawClient, api_versions
from tests.support.sasl_broker import (
    MECHANISMS,
    PASSWORD,
    USER,
    SaslBroker,
    running_sasl_broker,
    start_sasl_broker,
)
from tests.support.secured_clients import VALUES
from tidelog.client import (
    Admin,
    AuthenticationFailed,
    ClientError,
    Consumer,
    Producer,
    ScramDeletion,
    ScramMechanism,
)
from tidelog.client.network.versions import SPOKEN
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.sasl.scram import ScramClient
from tidelog.types import TopicPartition

EACH_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    directory = tmp_path_factory.mktemp("sasl") / "broker"
    with running_sasl_broker(directory, authority=authority) as started:
        yield started


@pytest.fixture(scope="module")
def broker(over_tls: SaslBroker) -> SaslBroker:
    """The same one without TLS."""
    return over_tls._replace(authority=None)


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def listener(
    request: pytest.FixtureRequest, over_tls: SaslBroker, broker: SaslBroker
) -> SaslBroker:
    return over_tls if request.param == over_tls.protocol else broker


def java_settings(broker: SaslBroker, mechanism: str) -> dict[str, Any]:
    return broker.config(mechanism)


def librdkafka_settings(broker: SaslBroker, mechanism: str) -> dict[str, Any]:
    return {
        **secured_clients.librdkafka_keys(broker),
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def python_login(mechanism: str) -> dict[str, Any]:
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }


def kafka_python_settings(broker: SaslBroker, mechanism: str) -> dict[str, Any]:
    return {**secured_clients.kafka_python_keys(broker), **python_login(mechanism)}


def aiokafka_settings(broker: SaslBroker, mechanism: str) -> dict[str, Any]:
    return {**secured_clients.aiokafka_keys(broker), **python_login(mechanism)}


NEEDS_KCAT = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@EACH_MECHANISM
@pytest.mark.parametrize(
    ("client", "settings"),
    [
        pytest.param(secured_clients.tidelog, java_settings, id="tidelog"),
        pytest.param(secured_clients.confluent_kafka, librdkafka_settings, id="confluent-kafka"),
        pytest.param(secured_clients.kafka_python, kafka_python_settings, id="kafka-python"),
        pytest.param(secured_clients.aiokafka, aiokafka_settings, id="aiokafka"),
        pytest.param(secured_clients.kcat, librdkafka_settings, id="kcat", marks=NEEDS_KCAT),
    ],
)
def test_each_client_administers_writes_and_reads(
    listener: SaslBroker, topic_name: str, client: Any, settings: Any, mechanism: str
) -> None:
    assert client(settings(listener, mechanism), topic_name) == VALUES


def poll_often(consumer: Consumer) -> None:
    for _ in range(30):
        consumer.poll(1.0)


class TestStrangers:
    @EACH_MECHANISM
    @pytest.mark.parametrize("user", [USER, "nobody"])
    def test_wrong_credentials_are_refused_at_once_and_told_apart_by_nobody(
        self, broker: SaslBroker, mechanism: str, user: str
    ) -> None:
        before = len(broker.closing_lines())
        config = broker.config(mechanism, user, "wrong")
        with pytest.raises(AuthenticationFailed) as raised, Admin(config) as admin:
            admin.list_topics()
        message = str(raised.value)
        assert mechanism in message
        assert "wrong" not in message.replace("wrong credentials", "")
        assert user not in message
        eventually(lambda: len(broker.closing_lines()) > before)
        assert len(broker.closing_lines()) == before + 1

    @EACH_MECHANISM
    def test_producers_and_consumers_say_so_too(
        self, broker: SaslBroker, topic_name: str, mechanism: str
    ) -> None:
        config = broker.config(mechanism, USER, "wrong")
        with pytest.raises(AuthenticationFailed), Producer(config) as producer:
            producer.send(topic_name, value=b"x").result(60)
        member, loner = Consumer({**config, "group.id": topic_name}), Consumer(config)
        member.subscribe([topic_name])
        with member, pytest.raises(AuthenticationFailed):
            poll_often(member)
        loner.assign([TopicPartition(topic_name, 0)])
        with loner, pytest.raises(AuthenticationFailed):
            poll_often(loner)

    def test_a_client_without_sasl_gets_nowhere(self, broker: SaslBroker) -> None:
        with RawClient(broker.bootstrap) as client:
            assert api_versions(client)
            with pytest.raises(ClosedByBroker):
                client.ask(MetadataRequest(topics=[]), 5, MetadataResponse)

    def test_a_client_with_sasl_is_told_when_nobody_asks_for_it(self, broker: SaslBroker) -> None:
        config = {**broker.config("PLAIN"), "bootstrap.servers": broker.plain_bootstrap}
        with pytest.raises(AuthenticationFailed, match="expects no auth"), Admin(config) as admin:
            admin.list_topics()

    def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list(
        self, start_broker: StartBroker
    ) -> None:
        process = start_broker(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            }
        )
        config = SaslBroker(process).config("PLAIN")
        with pytest.raises(AuthenticationFailed) as raised, Admin(config) as admin:
            admin.list_topics()
        assert "PLAIN: the broker has SCRAM-SHA-256" in str(raised.value)
        assert raised.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM

    @pytest.mark.parametrize(
        "frame",
        [
            b"\x7f\xff\xff\xff",  # an announced length above every limit
            struct.pack(">i", 524_289),
            struct.pack(">i", -1),
            struct.pack(">i", 0),
            struct.pack(">i", 18) + b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">i", 30) + b"\xff" * 30,
        ],
    )
    def test_garbage_closes_the_connection(self, broker: SaslBroker, frame: bytes) -> None:
        with RawClient(broker.bootstrap) as client:
            client.send_bytes(frame)
            assert client.is_closed_by_broker()

    def test_many_strangers_cost_no_memory(self, broker: SaslBroker) -> None:
        def storm() -> None:
            clients = [RawClient(broker.bootstrap) for _ in range(100)]
            for client in clients:
                client.send_bytes(struct.pack(">i", 524_288) + b"x" * 1000)
            for client in clients:
                client.close()

        storm()
        before = broker.process.resident_bytes()
        for _ in range(10):
            storm()
        eventually(lambda: broker.process.resident_bytes() < before + (32 << 20))
        with RawClient(broker.bootstrap) as client:
            assert api_versions(client)

    def test_a_failure_takes_its_time_and_the_connection_is_closed(
        self, broker: SaslBroker
    ) -> None:
        with RawClient(broker.bootstrap) as client:
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
            began = time.monotonic()
            answer = client.ask(
                SaslAuthenticateRequest(auth_bytes=b"\0alice\0no"), 2, SaslAuthenticateResponse
            )
            assert time.monotonic() - began >= 0.09
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed_by_broker()

    def test_a_replayed_exchange_is_refused(self, broker: SaslBroker) -> None:
        sent: list[bytes] = []
        scram = ScramClient(ScramMechanism.SCRAM_SHA_256, USER, PASSWORD)
        handshake = SaslHandshakeRequest(mechanism="SCRAM-SHA-256")

        def send(client: RawClient, token: bytes) -> SaslAuthenticateResponse:
            request = SaslAuthenticateRequest(auth_bytes=token)
            return client.ask(request, 2, SaslAuthenticateResponse)

        with RawClient(broker.bootstrap) as client:
            client.ask(handshake, 1, SaslHandshakeResponse)
            challenge = b""
            while not scram.is_complete:
                token = scram.evaluate(challenge)
                if not scram.is_complete:
                    sent.append(token)
                    challenge = bytes(send(client, token).auth_bytes)
        with RawClient(broker.bootstrap) as client:
            client.ask(handshake, 1, SaslHandshakeResponse)
            assert send(client, sent[0]).error_code == 0
            assert send(client, sent[1]).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    def test_the_log_holds_no_secret(self, broker: SaslBroker) -> None:
        assert PASSWORD not in broker.process.log_text()
        assert "bob-secret" not in broker.process.log_text()


def test_old_clients_send_bare_tokens(broker: SaslBroker) -> None:
    """Clients before 1.0: SaslHandshake v0, then frames without a header."""
    scram = ScramClient(ScramMechanism.SCRAM_SHA_512, USER, PASSWORD)
    with RawClient(broker.bootstrap) as client:
        client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0, SaslHandshakeResponse)
        challenge = b""
        while True:
            token = scram.evaluate(challenge)
            if scram.is_complete:
                break
            client.send_frame(token)
            challenge = client.read_frame()
        assert client.ask(MetadataRequest(topics=[]), 5, MetadataResponse).brokers


def test_a_deleted_user_cannot_log_in_again(broker: SaslBroker) -> None:
    broker.add_user("carol", "carol-secret")
    config = broker.config("SCRAM-SHA-256", "carol", "carol-secret")
    with Admin(config) as admin:
        admin.list_topics()
        gone = [ScramDeletion("carol", ScramMechanism.SCRAM_SHA_256)]
        admin.alter_user_scram_credentials(gone)["carol"].get()
        admin.list_topics()  # who is in stays in
    with pytest.raises(AuthenticationFailed), Admin(config) as admin:
        admin.list_topics()
    with Admin(broker.config("SCRAM-SHA-512", "carol", "carol-secret")) as admin:
        admin.list_topics()


def test_users_outlive_the_broker(start_broker: StartBroker) -> None:
    broker = start_sasl_broker(start_broker)
    broker.process.restart()
    with Admin(broker.config("SCRAM-SHA-256")) as admin:
        admin.list_topics()


@EACH_MECHANISM
def test_sessions_are_renewed_while_records_flow(
    start_broker: StartBroker, topic_name: str, mechanism: str
) -> None:
    """KIP-368, by tidelog's producer and by librdkafka."""
    import confluent_kafka as ck

    broker = start_sasl_broker(start_broker, {"connections.max.reauth.ms": "3000"})
    theirs = ck.Producer(librdkafka_settings(broker, mechanism))
    failures: list[Any] = []
    with Producer(broker.config(mechanism, linger_ms=0)) as ours:
        until = time.monotonic() + 8
        count = 0
        while time.monotonic() < until:
            ours.send(topic_name, value=b"ours").result(30)
            theirs.produce(
                topic_name, b"theirs", on_delivery=lambda e, _: failures.append(e) if e else None
            )
            theirs.poll(0.05)
            count += 1
    assert theirs.flush(60) == 0
    assert (failures, count > 10) == ([], True)
    assert "expired" not in broker.process.log_text()


def test_a_session_that_is_not_renewed_ends(start_broker: StartBroker) -> None:
    broker = start_sasl_broker(
        start_broker,
        {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "300"},
    )
    with RawClient(broker.bootstrap) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        token = f"\0{USER}\0{PASSWORD}".encode()
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2, SaslAuthenticateResponse)
        assert answer.session_lifetime_ms == 300

        def is_over() -> bool:
            try:
                client.ask(MetadataRequest(topics=[]), 5, MetadataResponse)
            except ClosedByBroker:
                return True
            return False

        eventually(is_over)
    assert "its session has expired" in broker.process.log_text()


def test_with_processor_threads_it_is_the_same(start_broker: StartBroker) -> None:
    broker = start_sasl_broker(start_broker, {"num.network.threads": "3"})
    for mechanism in MECHANISMS:
        with Admin(broker.config(mechanism)) as admin:
            admin.list_topics()
        with (
            pytest.raises(AuthenticationFailed),
            Admin(broker.config(mechanism, password="no")) as admin,
        ):
            admin.list_topics()


@EACH_MECHANISM
def test_tidelogs_client_speaks_to_brokers_before_1_0(
    broker: SaslBroker, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have SaslHandshake v0 alone, and take tokens without a header."""
    monkeypatch.setitem(SPOKEN, ApiKey.SASL_HANDSHAKE, (0, 0))
    with Admin(broker.config(mechanism)) as admin:
        admin.list_topics()
    config = broker.config(mechanism, password="no", default_api_timeout_ms=2000)
    with pytest.raises(ClientError, match="hang up on wrong credentials"), Admin(config) as admin:
        admin.list_topics()
