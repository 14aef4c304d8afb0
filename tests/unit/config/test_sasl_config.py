from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.client import AdminConfig
from tidelog.config.definition import ConfigError
from tidelog.config.description import BrokerLayers
from tidelog.config.jaas import PLAIN_MODULE, SCRAM_MODULE
from tidelog.config.sasl import Login
from tidelog.config.server_properties import load_broker_config

LISTENERS = {"listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093"}
OWN = "listener.name.sasl_plaintext."
USERS = {f"{OWN}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="hush";'}
PLAIN = {**LISTENERS, "sasl.enabled.mechanisms": "PLAIN", **USERS}
IN_CLUSTER = {
    **PLAIN,
    "zookeeper.connect": "127.0.0.1:2181",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
BROKERS_OWN = f'{PLAIN_MODULE} required username="broker" password="hush" user_broker="hush";'


def test_a_listener_has_its_mechanisms_and_users() -> None:
    listener = BrokerConfig(PLAIN).sasl_listeners["SASL_PLAINTEXT"]
    assert (listener.mechanisms, listener.plain_users) == (("PLAIN",), {"alice": "hush"})
    assert (listener.max_receive_size, listener.max_reauth_ms) == (524_288, {"PLAIN": 0})
    assert "hush" not in repr(listener)


def test_listeners_and_mechanisms_have_settings_of_their_own() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://:1,IN://:2,OUT://:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,OUT:"
            "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "connections.max.reauth.ms": "1000",
            "sasl.server.max.receive.size": "900",
            "listener.name.in.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,PLAIN",
            "listener.name.in.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_a="b";',
            "listener.name.in.sasl.server.max.receive.size": "800",
            "listener.name.in.connections.max.reauth.ms": "2000",
            "listener.name.in.scram-sha-256.connections.max.reauth.ms": "3000",
        }
    )
    inside, outside = config.sasl_listeners["IN"], config.sasl_listeners["OUT"]
    assert inside.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert inside.max_reauth_ms == {"PLAIN": 2000, "SCRAM-SHA-256": 3000}
    assert (inside.max_receive_size, inside.plain_users) == (800, {"a": "b"})
    assert outside.max_reauth_ms == {"SCRAM-SHA-512": 1000}
    assert (outside.max_receive_size, outside.plain_users) == (900, {})
    assert config.warnings == ()


def test_settings_without_a_prefix_hold_for_listeners_without_their_own() -> None:
    config = BrokerConfig(
        {
            **LISTENERS,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="hush";',
        }
    )
    assert config.sasl_listeners["SASL_PLAINTEXT"].plain_users == {"alice": "hush"}


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        (LISTENERS, r"GSSAPI.*only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER are supported"),
        ({**LISTENERS, "sasl.enabled.mechanisms": ""}, "needs at least one mechanism"),
        ({**LISTENERS, "sasl.enabled.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({**LISTENERS, "sasl.enabled.mechanisms": "PLAIN"}, "has no users"),
        (
            {**PLAIN, f"{OWN}plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="a";'},
            "has no users",
        ),
        (
            {**PLAIN, f"{OWN}plain.sasl.jaas.config": f'{SCRAM_MODULE} required user_a="b";'},
            "exactly one entry of .*PlainLoginModule",
        ),
        (
            {**PLAIN, f"{OWN}plain.sasl.jaas.config": "com.example.Module required;"},
            "no login module that is known",
        ),
        (
            {**PLAIN, f"{OWN}plain.sasl.server.callback.handler.class": "com.example.Handler"},
            "Java classes cannot be loaded",
        ),
        ({**PLAIN, f"{OWN}sasl.no.such.key": "1"}, "no such setting of SASL"),
        (
            {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "security.inter.broker.protocol: no such listener",
        ),
        (IN_CLUSTER, "has no username and password"),
        (
            {**IN_CLUSTER, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "by which brokers reach each other, has PLAIN",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "nobody would have to authenticate"),
        ({f"{OWN}sasl.enabled.mechanisms": "PLAIN"}, "no listener SASL_PLAINTEXT with SASL"),
        (
            {**PLAIN, "listener.name.SASL_PLAINTEXT.sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            "in lower case",
        ),
    ],
)
def test_a_listener_that_nobody_could_use_ends_the_start(
    properties: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        BrokerConfig(properties)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("plian.sasl.jaas.config", "plain.sasl.jaas.config"),
        ("plain.sasl.server.max.receive.size", "sasl.server.max.receive.size"),
        ("plain.sasl.enabled.mechanisms", "sasl.enabled.mechanisms"),
        ("plain.foo.sasl.jaas.config", "plain.sasl.jaas.config"),
    ],
)
def test_a_sasl_key_that_no_mechanism_has_ends_the_start(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig({**PLAIN, f"{OWN}{name}": "hush"})
    assert f"{OWN}{name}: there is no such setting of SASL; remove the key" in str(raised.value)
    assert f"(did you mean {OWN}{nearest}?)" in str(raised.value)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["plian.connections.max.reauth.ms", "plain.foo.connections.max.reauth.ms"],
)
def test_the_age_of_sessions_of_a_misspelt_mechanism_is_an_unknown_key(name: str) -> None:
    text = f"{OWN}{name}"
    override = (text, "5000")
    nearest = f"{OWN}plain.connections.max.reauth.ms"
    doubt = f"--override: unknown configuration key {text}; did you mean {nearest}?"
    assert load_broker_config(None, [*PLAIN.items(), override]).warnings == (doubt,)
    with pytest.raises(ConfigError, match=f"refused by --strict: {re.escape(doubt)}"):
        load_broker_config(None, [*PLAIN.items(), override], strict=True)
    assert nearest not in BrokerConfig(dict([*PLAIN.items(), override]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scram-sha-512.connections.max.reauth.ms", "5000"),
        ("scram-sha-512.sasl.jaas.config", f'{SCRAM_MODULE} required username="a" password="b";'),
        ("gssapi.sasl.kerberos.service.name", "kafka"),
        ("PLAIN.connections.max.reauth.ms", "5000"),
        ("plain.sasl.oauthbearer.clock.skew.seconds", "5"),
    ],
)
def test_a_key_that_no_enabled_mechanism_reads_is_warned_of(name: str, value: str) -> None:
    config = BrokerConfig({**PLAIN, f"{OWN}{name}": value})
    assert config.warnings == (f"accepted, but without effect here: {OWN}{name}",)
    assert config.sasl_listeners == BrokerConfig(PLAIN).sasl_listeners


def test_brokers_log_in_with_the_settings_of_their_own_listener() -> None:
    config = BrokerConfig({**IN_CLUSTER, f"{OWN}plain.sasl.jaas.config": BROKERS_OWN})
    assert config.inter_broker_login == Login("PLAIN", "broker", "hush")
    assert "hush" not in repr(config.inter_broker_login)


def test_passwords_are_not_described() -> None:
    described = BrokerLayers(BrokerConfig(PLAIN)).describe_broker()
    assert "hush" not in repr(described)
    assert f"{OWN}plain.sasl.jaas.config" in {entry.name for entry in described}


def admin_config(**options: Any) -> AdminConfig:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return AdminConfig({"bootstrap.servers": "localhost:9092", **named})


LOGIN = f'{SCRAM_MODULE} required username="alice" password="hush";'


def test_a_client_logs_in_with_what_its_configuration_says() -> None:
    config = admin_config(
        security_protocol="sasl_plaintext", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=LOGIN
    )
    assert config.login == Login("SCRAM-SHA-256", "alice", "hush")
    assert pickle.loads(pickle.dumps(config)).login == config.login
    assert "hush" not in repr(config)
    assert config.warnings == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "GSSAPI"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.jaas.config has no username and password"),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": LOGIN}, "exactly one entry"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": LOGIN}, "OAUTHBEARER"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": "hush"}, "no login module"),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{PLAIN_MODULE} required tokenauth=true username="x" '
                'password="hush";',
            },
            "tokenauth needs",
        ),
        ({"sasl_login_class": "com.example.Login"}, "Java classes cannot be loaded"),
    ],
)
def test_a_client_that_could_not_log_in_is_not_made(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        admin_config(security_protocol="SASL_PLAINTEXT", **options)
    assert "hush" not in str(raised.value) or options["sasl_jaas_config"] == "hush"


def test_a_client_may_log_in_with_a_delegation_token() -> None:
    config = admin_config(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=LOGIN.replace("required", 'required tokenauth="true"'),
    )
    assert config.login == Login("SCRAM-SHA-512", "alice", "hush", is_token=True)


def test_credentials_that_are_not_used_are_warned_of() -> None:
    (warning,) = admin_config(sasl_jaas_config=LOGIN).warnings
    assert "security.protocol is PLAINTEXT" in warning
