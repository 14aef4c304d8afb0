"""Apache Kafka's own tools with tokens of tidelog: delegation tokens, and OAUTHBEARER."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION, jars_or_reason
from tests.interop.apache_kafka import CACHE, TOOL_TIMEOUT_S
from tests.support.broker_process import BrokerProcess
from tests.support.oauth_provider import AUDIENCE, CLIENT_ID, CLIENT_SECRET, OAuthProvider
from tests.support.sasl_broker import OVERRIDES, SaslBroker, start_sasl_broker
from tidelog.config.jaas import OAUTH_MODULE, SCRAM_MODULE
from tidelog.config.oauth import LOGIN_HANDLERS


@pytest.fixture(params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def libs(request: pytest.FixtureRequest) -> Path:
    CACHE.mkdir(exist_ok=True)
    found = jars_or_reason(CACHE, request.param)
    if isinstance(found, str):
        pytest.skip(f"Apache Kafka is not here: {found}")
    return found


@pytest.fixture
def provider() -> Iterator[OAuthProvider]:
    with OAuthProvider() as started:
        yield started


@pytest.fixture
def broker(tmp_path: Path, provider: OAuthProvider) -> Iterator[SaslBroker]:
    started: list[BrokerProcess] = []

    def start(overrides: dict[str, str]) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "broker", overrides))
        return started[0].start()

    yield start_sasl_broker(
        start,
        {
            "sasl.enabled.mechanisms": f"{OVERRIDES['sasl.enabled.mechanisms']},OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": "the secret of all brokers",
        },
    )
    started[0].kill()


def run(libs: Path, tool: str, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [
            "java",
            "-Xmx256m",
            "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + urls(arguments),
            "-cp",
            f"{libs}/*",
            tool,
            *arguments,
        ],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def urls(arguments: tuple[str, ...]) -> str:
    """Those in the settings: Kafka asks no others."""
    texts = [Path(each).read_text() for each in arguments if each.endswith(".properties")]
    return ",".join(url for text in texts for url in re.findall(r"http://\S+", text))


def written(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def round_trip(libs: Path, broker: SaslBroker, login: str) -> None:
    where = ("--bootstrap-server", broker.bootstrap, "--topic", "t")
    producer = ("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer")
    tool = producer[0] if NEWEST_KAFKA_VERSION in str(libs) else producer[1]
    run(libs, tool, *where, "--producer.config", login, stdin="one\ntwo\n")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    read = ("--from-beginning", "--max-messages", "2", "--consumer.config", login)
    assert run(libs, consumer, *where, *read).endswith("one\ntwo\n")


def test_kafkas_tool_makes_tokens_that_javas_clients_log_in_with(
    broker: SaslBroker, libs: Path, tmp_path: Path
) -> None:
    bob = written(tmp_path / "bob.properties", broker.config("PLAIN", "bob", "bob-secret"))

    def tokens(*arguments: str) -> str:
        where = ("--bootstrap-server", broker.bootstrap, "--command-config", bob)
        return run(libs, "org.apache.kafka.tools.DelegationTokenCommand", *where, *arguments)

    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice")
    token_id, hmac, owner, requester, renewers, *_ = made.splitlines()[-1].split()
    assert (owner, requester, renewers) == ("User:bob", "User:bob", "[User:alice]")
    login = {
        **broker.config("SCRAM-SHA-512"),
        "sasl.jaas.config": (
            f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'
        ),
    }
    round_trip(libs, broker, written(tmp_path / "token.properties", login))
    assert token_id in tokens("--describe", "--owner-principal", "User:bob")
    # Without an owner it asks for the tokens of an empty list of owners, and a Kafka gives none.
    assert "Total number of tokens : 0" in tokens("--describe")
    renewed = tokens("--renew", "--hmac", hmac, "--renew-time-period", "-1")
    assert "Completed renew operation" in renewed
    assert "Completed expire" in tokens("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    assert token_id not in tokens("--describe", "--owner-principal", "User:bob")


def test_javas_clients_log_in_with_tokens_of_a_provider(
    broker: SaslBroker, libs: Path, tmp_path: Path, provider: OAuthProvider
) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
        "sasl.jaas.config": (
            f'{OAUTH_MODULE} required clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" '
            'scope="kafka" extension_traceId="7";'
        ),
    }
    round_trip(libs, broker, written(tmp_path / "oauth.properties", login))
    assert provider.asked_for_tokens
