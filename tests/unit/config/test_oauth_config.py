"""What brokers and clients make of the keys of OAUTHBEARER."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.client import AdminConfig
from tidelog.config.definition import ConfigError
from tidelog.config.jaas import OAUTH_MODULE, PLAIN_MODULE
from tidelog.config.oauth import (
    LOGIN_HANDLERS,
    SERVER_HANDLERS,
    SIGNED_HANDLERS,
    TOKEN_PROVIDER,
    UNSECURED_HANDLER,
    OAuthLogin,
    SignedTokens,
    UnsecuredTokens,
)

OWN = "listener.name.sasl_plaintext."
OAUTH = f"{OWN}oauthbearer."
URL = "https://issuer.example/keys"
BROKER = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}
SIGNED = {**BROKER, "sasl.oauthbearer.jwks.endpoint.url": URL}
JAAS = f"{OAUTH}sasl.jaas.config"


def rules(properties: dict[str, str]) -> SignedTokens | UnsecuredTokens | None:
    return BrokerConfig(properties).sasl_listeners["SASL_PLAINTEXT"].token_rules


def unsecured(options: str = 'unsecuredValidatorPrincipalClaimName="sub"') -> dict[str, str]:
    return {**BROKER, JAAS: f"{OAUTH_MODULE} required {options};"}


def test_a_listener_judges_tokens_by_kafkas_keys() -> None:
    found = rules(
        {
            **SIGNED,
            f"{OAUTH}sasl.oauthbearer.expected.audience": "a, b",
            "sasl.oauthbearer.expected.issuer": "https://issuer.example",
            f"{OWN}sasl.oauthbearer.clock.skew.seconds": "5",
            f"{OAUTH}sasl.oauthbearer.sub.claim.name": "email",
            "sasl.oauthbearer.scope.claim.name": "scp",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "7000",
            JAAS: f'{OAUTH_MODULE} required ssl.truststore.location="/ca.pem";',
        }
    )
    assert isinstance(found, SignedTokens)
    assert found.jwks.url == URL
    assert found.jwks.tls == {"ssl.truststore.location": "/ca.pem"}
    assert (found.expected_audience, found.expected_issuer) == (
        ("a", "b"),
        "https://issuer.example",
    )
    assert (found.clock_skew_seconds, found.refresh_ms) == (5, 7000)
    assert (found.sub_claim_name, found.scope_claim_name) == ("email", "scp")
    assert BrokerConfig(SIGNED).warnings == ()


@pytest.mark.parametrize("handler", SIGNED_HANDLERS)
def test_kafkas_own_handler_may_be_named(handler: str) -> None:
    found = rules({**SIGNED, f"{OAUTH}sasl.server.callback.handler.class": handler})
    assert isinstance(found, SignedTokens)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        (BROKER, "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url"),
        ({**BROKER, JAAS: f"{OAUTH_MODULE} required;"}, "needs sasl.oauthbearer.jwks"),
        (
            {**BROKER, f"{OAUTH}sasl.server.callback.handler.class": SIGNED_HANDLERS[0]},
            "needs sasl.oauthbearer.jwks",
        ),
        ({**SIGNED, **unsecured()}, "would let everybody in"),
        (
            {**SIGNED, f"{OAUTH}sasl.server.callback.handler.class": UNSECURED_HANDLER},
            "would let everybody in",
        ),
        (
            {**unsecured(), f"{OAUTH}sasl.server.callback.handler.class": SIGNED_HANDLERS[0]},
            "would let everybody in",
        ),
        (unsecured('unsecuredValidatorAllowableClockSkewMs="-1"'), "must be a number"),
        (unsecured('unsecuredValidatorNoSuch="1"'), "has no option unsecuredValidatorNoSuch"),
        ({**SIGNED, JAAS: f'{OAUTH_MODULE} required clientID="x";'}, "has no option clientID"),
        (
            {**SIGNED, f"{OAUTH}sasl.server.callback.handler.class": "com.example.Handler"},
            "Java classes cannot be loaded",
        ),
        (
            {
                **SIGNED,
                "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
                f"{OWN}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_a="b";',
                f"{OWN}plain.sasl.server.callback.handler.class": SERVER_HANDLERS[0],
            },
            "PLAIN has no handlers",
        ),
        ({**SIGNED, "sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "at least 1"),
        ({**SIGNED, "sasl.oauthbearer.clock.skew.seconds": "-1"}, "at least 0"),
        ({**SIGNED, "sasl.oauthbearer.sub.claim.name": " "}, "must name a claim"),
    ],
)
def test_a_listener_that_would_let_in_the_wrong_people_ends_the_start(
    properties: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig(properties)


@pytest.mark.parametrize(
    "url",
    ["ftp://x/keys", "https://", "keys.json", "https://u:hush@x/", "file:", "file://host/k"],
)
def test_a_url_must_be_one_that_can_be_read(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url") as raised:
        BrokerConfig({**BROKER, "sasl.oauthbearer.jwks.endpoint.url": url})
    assert "hush" not in str(raised.value)


class TestUnsecured:
    @pytest.mark.parametrize(
        "properties",
        [
            unsecured(),
            {**BROKER, f"{OAUTH}sasl.server.callback.handler.class": UNSECURED_HANDLER},
        ],
    )
    def test_it_must_be_asked_for_and_is_said_loudly(self, properties: dict[str, str]) -> None:
        assert rules(properties) == UnsecuredTokens()
        (warning,) = BrokerConfig(properties).warnings
        assert warning.startswith("INSECURE: the listener SASL_PLAINTEXT takes tokens without")

    def test_it_has_kafkas_options(self) -> None:
        options = (
            'unsecuredValidatorPrincipalClaimName="name" unsecuredValidatorScopeClaimName="scp" '
            'unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="900"'
        )
        assert rules(unsecured(options)) == UnsecuredTokens("name", "scp", ("a", "b"), 900)

    def test_such_a_listener_counts_as_open_to_everybody(self) -> None:
        away = {
            **unsecured(),
            "listeners": "PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://10.0.0.1:2",
        }
        assert [each.port for each in BrokerConfig(away).open_to_everybody()] == [2]


class TestLogin:
    def config(self, **options: Any) -> AdminConfig:
        named = {name.replace("_", "."): value for name, value in options.items()}
        return AdminConfig(
            {
                "bootstrap.servers": "localhost:9092",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                **named,
            }
        )

    def login(self, **options: Any) -> OAuthLogin:
        found = self.config(**options).login
        assert isinstance(found, OAuthLogin)
        return found

    def test_credentials_come_from_the_login_module(self) -> None:
        jaas = (
            f'{OAUTH_MODULE} required clientId="shop" clientSecret="hush" scope="read" '
            'extension_traceId="7" ssl.truststore.type="PEM";'
        )
        config = self.config(
            sasl_oauthbearer_token_endpoint_url="https://issuer.example/token",
            sasl_jaas_config=jaas,
            sasl_login_callback_handler_class=LOGIN_HANDLERS[0],
            sasl_login_refresh_window_factor="0.7",
        )
        login = config.login
        assert isinstance(login, OAuthLogin)
        assert (login.client_id, login.client_secret, login.scope) == ("shop", "hush", "read")
        assert login.extensions == {"traceId": "7"}
        assert login.endpoint is not None
        assert login.endpoint.tls == {"ssl.truststore.type": "PEM"}
        assert login.refresh.window_factor == 0.7
        assert "hush" not in repr(login) + repr(config)
        assert config.warnings == []

    def test_or_from_keys_of_their_own(self) -> None:
        login = self.login(
            sasl_oauthbearer_token_endpoint_url="https://issuer.example/token",
            sasl_oauthbearer_client_credentials_client_id="shop",
            sasl_oauthbearer_client_credentials_client_secret="hush",
            sasl_oauthbearer_scope="read",
            sasl_oauthbearer_header_urlencode="true",
        )
        assert (login.client_id, login.client_secret, login.scope) == ("shop", "hush", "read")
        assert login.urlencode_header

    def test_a_file_needs_no_credentials(self) -> None:
        login = self.login(sasl_oauthbearer_token_endpoint_url="file:///run/my%20token")
        assert login.endpoint is not None
        assert login.endpoint.path_or_none == "/run/my token"

    def test_a_function_may_be_given_or_named(self) -> None:
        assert self.login(**{TOKEN_PROVIDER: "module:function"}).provider == "module:function"
        config = self.config(**{TOKEN_PROVIDER: a_token})
        assert isinstance(config.login, OAuthLogin)
        assert config.login.provider is a_token
        for again in (pickle.loads(pickle.dumps(config)), AdminConfig.of(config)):
            assert again.login == config.login

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({}, "needs sasl.oauthbearer.token.endpoint.url"),
            (
                {"sasl_oauthbearer_token_endpoint_url": "https://x/token"},
                "no clientId and clientSecret",
            ),
            (
                {"sasl_oauthbearer_token_endpoint_url": "file:///t", TOKEN_PROVIDER: "a:b"},
                "are both set",
            ),
            ({TOKEN_PROVIDER: "function"}, "module:function"),
            (
                {"sasl_jaas_config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="a";'},
                "no unsigned tokens are made",
            ),
            (
                {
                    "sasl_oauthbearer_token_endpoint_url": "file:///t",
                    "sasl_jaas_config": f'{OAUTH_MODULE} required extension_auth="a";',
                },
                "cannot have the name 'auth'",
            ),
            ({"sasl_oauthbearer_assertion_file": "/a"}, "not with an assertion"),
            ({"sasl_login_callback_handler_class": "com.example.H"}, "Java classes"),
        ],
    )
    def test_a_client_without_a_way_to_a_token_is_not_made(
        self, options: dict[str, str], problem: str
    ) -> None:
        with pytest.raises(ConfigError, match=problem):
            self.config(**options)

    def test_keys_that_have_no_effect_are_warned_of(self) -> None:
        config = AdminConfig(
            {
                "bootstrap.servers": "localhost:9092",
                "sasl.oauthbearer.token.endpoint.url": "https://x/token",
            }
        )
        (warning,) = config.warnings
        assert "OAUTHBEARER alone uses it" in warning

    def test_brokers_log_in_to_each_other_likewise(self) -> None:
        config = BrokerConfig(
            {
                **SIGNED,
                "zookeeper.connect": "127.0.0.1:2181",
                "inter.broker.listener.name": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
                f"{OAUTH}sasl.oauthbearer.token.endpoint.url": "https://x/token",
                JAAS: f'{OAUTH_MODULE} required clientId="broker" clientSecret="hush";',
            }
        )
        login = config.inter_broker_login
        assert isinstance(login, OAuthLogin)
        assert (login.client_id, login.client_secret) == ("broker", "hush")
        assert config.warnings == ()


def a_token() -> str:
    return "a.b.c"
