"""A real broker that takes tokens of an identity provider: clients, keys, strangers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartBroker
from tests.support import secured_clients
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.oauth_provider import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    ISSUER,
    OAuthProvider,
    claims_of,
    jwks,
    rsa_key,
    signed,
    unsecured,
)
from tests.support.raw_client import ClosedByBroker, RawClient
from tests.support.sasl_broker import SaslBroker
from tests.support.secured_clients import VALUES
from tidelog.client import (
    Admin,
    AuthenticationFailed,
    ClientError,
    Producer,
)
from tidelog.config.jaas import OAUTH_MODULE
from tidelog.config.oauth import TOKEN_PROVIDER
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}


def settings(provider: OAuthProvider, **more: str) -> dict[str, str]:
    return {
        **LISTENERS,
        "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        **more,
    }


@pytest.fixture(scope="module")
def provider() -> Iterator[OAuthProvider]:
    with OAuthProvider() as started:
        yield started


@pytest.fixture(scope="module")
def over_tls(
    provider: OAuthProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SaslBroker]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    listeners = f"{LISTENERS['listeners']},SASL_SSL://127.0.0.1:0"
    overrides = settings(provider, listeners=listeners, **authority.broker_keys())
    process = BrokerProcess(tmp_path_factory.mktemp("oauth") / "broker", overrides)
    yield SaslBroker(process.start(), authority)
    process.kill()
    assert not process.long_stalls()


@pytest.fixture(scope="module")
def broker(over_tls: SaslBroker) -> SaslBroker:
    """The same one without TLS."""
    return over_tls._replace(authority=None)


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def listener(
    request: pytest.FixtureRequest, over_tls: SaslBroker, broker: SaslBroker
) -> SaslBroker:
    return over_tls if request.param == over_tls.protocol else broker


def login(broker: SaslBroker, provider: OAuthProvider, **more: Any) -> dict[str, Any]:
    """Of tidelog's clients, and Kafka's."""
    return {
        **broker.connection_keys(),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.jaas.config": (
            f'{OAUTH_MODULE} required clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" '
            'scope="kafka" extension_traceId="7";'
        ),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def with_token(broker: SaslBroker, token: str) -> dict[str, Any]:
    return {
        **broker.connection_keys(),
        "sasl.mechanism": "OAUTHBEARER",
        TOKEN_PROVIDER: lambda: token,
    }


def oidc_settings(broker: SaslBroker, provider: OAuthProvider) -> dict[str, Any]:
    return {
        **secured_clients.librdkafka_keys(broker),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.extensions": "traceId=7",
    }


def callback_settings(broker: SaslBroker, provider: OAuthProvider) -> dict[str, Any]:
    def token(_: str) -> tuple[str, float]:
        return provider.token("alice"), time.time() + 3600

    login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
    return {**secured_clients.librdkafka_keys(broker), **login}


def python_login(tokens: object) -> dict[str, Any]:
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": tokens}


def kafka_python_settings(broker: SaslBroker, provider: OAuthProvider) -> dict[str, Any]:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token("alice")

    return {**secured_clients.kafka_python_keys(broker), **python_login(Tokens())}


def aiokafka_settings(broker: SaslBroker, provider: OAuthProvider) -> dict[str, Any]:
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return provider.token("alice")

    return {**secured_clients.aiokafka_keys(broker), **python_login(Tokens())}


class TestClients:
    @pytest.mark.parametrize(
        ("client", "settings_of"),
        [
            (secured_clients.confluent_kafka, oidc_settings),
            (secured_clients.confluent_kafka, callback_settings),
            (secured_clients.kafka_python, kafka_python_settings),
            (secured_clients.aiokafka, aiokafka_settings),
        ],
        ids=["confluent-kafka-oidc", "confluent-kafka-oauth_cb", "kafka-python", "aiokafka"],
    )
    def test_each_administers_writes_and_reads(
        self,
        listener: SaslBroker,
        provider: OAuthProvider,
        topic_name: str,
        client: Any,
        settings_of: Any,
    ) -> None:
        assert client(settings_of(listener, provider), topic_name) == VALUES

    def test_tidelogs_own_asks_for_one_token_each(
        self,
        listener: SaslBroker,
        provider: OAuthProvider,
        topic_name: str,
    ) -> None:
        before = len(provider.asked_for_tokens)
        assert secured_clients.tidelog(login(listener, provider), topic_name) == VALUES
        asked = provider.asked_for_tokens[before:]
        assert len(asked) == 3  # one for each client, whatever the number of its connections
        assert asked[0] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}

    def test_a_token_in_a_file(
        self, broker: SaslBroker, provider: OAuthProvider, tmp_path: Path
    ) -> None:
        path = tmp_path / "token"
        path.write_text(provider.token("alice"))
        config = login(broker, provider)
        config["sasl.oauthbearer.token.endpoint.url"] = f"file://{path}"
        with Admin(config) as admin:
            admin.list_topics()


def raw_login(client: RawClient, token: str) -> SaslAuthenticateResponse:
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1, SaslHandshakeResponse)
    return authenticate(client, f"n,,\x01auth=Bearer {token}\x01\x01".encode())


def authenticate(client: RawClient, message: bytes) -> SaslAuthenticateResponse:
    return client.ask(SaslAuthenticateRequest(auth_bytes=message), 2, SaslAuthenticateResponse)


def bad_tokens() -> dict[str, str]:
    return {
        "expired": signed(claims_of("alice", exp=int(time.time()) - 60)),
        "not yet valid": signed(claims_of("alice", nbf=int(time.time()) + 60)),
        "another audience": signed(claims_of("alice", aud="other")),
        "another issuer": signed(claims_of("alice", iss="https://evil.example")),
        "unsigned": unsecured(claims_of("alice")),
        "a forged signature": signed(claims_of("alice"), rsa_key(99), kid="rsa-0"),
        "an unknown key": signed(claims_of("alice"), rsa_key(99)),
    }


class TestStrangers:
    @pytest.mark.parametrize("name", bad_tokens())
    def test_a_bad_token_is_refused_as_kafka_refuses_it(
        self, broker: SaslBroker, name: str
    ) -> None:
        token = bad_tokens()[name]
        with RawClient(broker.bootstrap) as client:
            answer = raw_login(client, token)
            assert (answer.error_code, bytes(answer.auth_bytes)) == (
                0,
                b'{"status":"invalid_token"}',
            )
            answer = authenticate(client, b"\x01")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == '{"status":"invalid_token"}'
            assert client.is_closed_by_broker()
        eventually(lambda: "a token is refused: " in broker.closing_lines()[-1])
        assert token not in broker.process.log_text()

    def test_a_refused_client_cannot_go_on(self, broker: SaslBroker) -> None:
        with RawClient(broker.bootstrap) as client:
            raw_login(client, bad_tokens()["expired"])
            with pytest.raises(ClosedByBroker):
                client.ask(MetadataRequest(topics=[]), 5, MetadataResponse)

    def test_tidelogs_client_is_told_at_once(self, broker: SaslBroker) -> None:
        config = with_token(broker, signed(claims_of("alice", aud="other")))
        with pytest.raises(AuthenticationFailed, match="invalid_token"), Admin(config) as admin:
            admin.list_topics()

    def test_a_wrong_secret_is_told_at_once(
        self, broker: SaslBroker, provider: OAuthProvider
    ) -> None:
        config = login(broker, provider)
        config["sasl.jaas.config"] = config["sasl.jaas.config"].replace(CLIENT_SECRET, "hush")
        with pytest.raises(AuthenticationFailed, match="invalid_client"), Admin(config) as admin:
            admin.list_topics()


def lists_topics(config: dict[str, Any]) -> bool:
    try:
        with Admin(config) as admin:
            admin.list_topics()
    except ClientError:
        return False
    return True


class TestKeys:
    def test_a_key_that_is_new_is_looked_for(self, start_broker: StartBroker) -> None:
        with OAuthProvider() as provider:
            broker = SaslBroker(start_broker(settings(provider)))
            old = with_token(broker, provider.token("alice"))
            assert lists_topics(old)
            provider.rotate()
            new = with_token(broker, provider.token("alice"))
            assert not lists_topics(new)  # but now the broker reads the keys anew
            eventually(lambda: lists_topics(new))
            assert not lists_topics(old)

    def test_keys_are_read_again_by_the_clock(self, start_broker: StartBroker) -> None:
        with OAuthProvider() as provider:
            often = {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "300"}
            broker = SaslBroker(start_broker(settings(provider, **often)))
            provider.rotate()
            asked = provider.asked_for_keys
            eventually(lambda: provider.asked_for_keys > asked + 1)
            assert lists_topics(with_token(broker, provider.token("alice")))
            provider.is_down = True
            eventually(lambda: "the old keys stay" in broker.process.log_text())
            assert lists_topics(with_token(broker, provider.token("alice")))

    def test_a_file_of_keys_is_read_again(self, start_broker: StartBroker, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        path.write_bytes(jwks(rsa_key()))
        broker = SaslBroker(
            start_broker({**LISTENERS, "sasl.oauthbearer.jwks.endpoint.url": f"file://{path}"})
        )
        token = signed(claims_of("alice", aud=None), rsa_key(1))
        assert not lists_topics(with_token(broker, token))
        path.write_bytes(jwks(rsa_key(), rsa_key(1)))
        broker.process.restart()
        assert lists_topics(with_token(broker, token))

    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            (None, "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url"),
            ("file:///no/such/keys.json", "there are no keys to check tokens with"),
            ("http://127.0.0.1:1/keys", "there are no keys to check tokens with"),
        ],
    )
    def test_without_keys_the_broker_does_not_start(
        self, tmp_path: Path, url: str | None, problem: str
    ) -> None:
        from tests.support.broker_process import run_serve

        given = {} if url is None else {"sasl.oauthbearer.jwks.endpoint.url": url}
        ended = run_serve({**LISTENERS, **given, "log.dirs": str(tmp_path / "data")})
        assert ended.returncode != 0
        assert problem in ended.stderr + ended.stdout


class TestSessions:
    def test_a_session_ends_with_its_token(
        self, broker: SaslBroker, provider: OAuthProvider
    ) -> None:
        with RawClient(broker.bootstrap) as client:
            answer = raw_login(client, provider.token("alice", exp=3))
            assert answer.error_code == 0
            assert 0 < answer.session_lifetime_ms <= 3_000
            assert client.ask(MetadataRequest(topics=[]), 5, MetadataResponse).brokers

            def is_over() -> bool:
                try:
                    client.ask(MetadataRequest(topics=[]), 5, MetadataResponse)
                except ClosedByBroker:
                    return True
                return False

            eventually(is_over)

    def test_clients_get_new_tokens_while_records_flow(
        self, start_broker: StartBroker, topic_name: str
    ) -> None:
        """KIP-368, by tidelog's producer and by librdkafka."""
        import confluent_kafka as ck

        with OAuthProvider() as provider:
            provider.lifetime_s = 8
            broker = SaslBroker(start_broker(settings(provider)))
            failures: list[Any] = []
            theirs = ck.Producer(
                {
                    **secured_clients.librdkafka_keys(broker),
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _: (provider.token("alice", exp=60), time.time() + 60),
                }
            )
            with Producer(login(broker, provider, linger_ms=0)) as ours:
                until = time.monotonic() + 18
                while time.monotonic() < until:
                    ours.send(topic_name, value=b"ours").result(30)
                    theirs.produce(
                        topic_name,
                        b"theirs",
                        on_delivery=lambda e, _: failures.append(e) if e else None,
                    )
                    theirs.poll(0.05)
            assert theirs.flush(60) == 0
            assert failures == []
            assert len(provider.asked_for_tokens) >= 3
            assert "expired" not in broker.process.log_text()


def test_unsecured_tokens_are_for_who_asks_and_the_log_says_so(start_broker: StartBroker) -> None:
    broker = SaslBroker(
        start_broker(
            {
                **LISTENERS,
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                    f'{OAUTH_MODULE} required unsecuredValidatorAllowableClockSkewMs="3000";'
                ),
            }
        )
    )
    assert lists_topics(with_token(broker, unsecured(claims_of("anybody"))))
    assert not lists_topics(with_token(broker, signed(claims_of("anybody"))))
    assert "INSECURE" in broker.process.log_text()
