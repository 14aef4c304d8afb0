"""What a configuration says about SASL: of a broker's listeners, and of whoever logs in.

A broker's listener has the keys of `listener.name.<listener>.`, and for one mechanism alone those
of `listener.name.<listener>.<mechanism>.`, in lower case. sasl.jaas.config without such a prefix
holds for listeners and mechanisms that have none of their own, as the section KafkaServer of a
JAAS file does in Kafka.

PLAIN gets its users from the options user_NAME of PlainLoginModule. The users of SCRAM are kept
with the cluster, so its module is needed only where brokers log in with it themselves: `username`
and `password` are what a broker, or a client, logs in with. With tokenauth="true" they are the id
and the HMAC of a delegation token. OAUTHBEARER is in `oauth.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.config.definition import ConfigError, InvalidValue, Value
from tidelog.config.jaas import MODULES, JaasEntry, entry_for
from tidelog.config.oauth import (
    OAUTH_LISTENER_KEYS,
    OAUTHBEARER,
    SERVER_HANDLER,
    Look,
    OAuthLogin,
    SignedTokens,
    UnsecuredTokens,
    oauth_login,
    token_rules,
)

PLAIN: Final = "PLAIN"
SERVED_MECHANISMS: Final = tuple(MODULES)
KNOWN_MECHANISMS: Final = (*SERVED_MECHANISMS, "GSSAPI")

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
JAAS_CONFIG: Final = "sasl.jaas.config"
INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
MAX_RECEIVE_SIZE: Final = "sasl.server.max.receive.size"
MAX_REAUTH_MS: Final = "connections.max.reauth.ms"
# Who sets one of these means that somebody has to authenticate.
SASL_ACCESS_KEYS: Final = (ENABLED_MECHANISMS, JAAS_CONFIG, INTER_BROKER_MECHANISM)
# What a single SASL listener may have of its own.
SASL_LISTENER_KEYS: Final = (
    ENABLED_MECHANISMS,
    JAAS_CONFIG,
    MAX_RECEIVE_SIZE,
    MAX_REAUTH_MS,
    *OAUTH_LISTENER_KEYS,
)
# What a single mechanism of a listener may have of its own; the last ones are refused, or named in
# a warning.
SASL_MECHANISM_KEYS: Final = (
    JAAS_CONFIG,
    MAX_REAUTH_MS,
    *OAUTH_LISTENER_KEYS,
    "sasl.login.class",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
)

Values = Mapping[str, Value]


class Login(NamedTuple):
    """What somebody logs in with."""

    mechanism: str
    username: str
    password: str
    is_token: bool = False  # id and HMAC of a delegation token

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.username!r}, [hidden])"


AnyLogin = Login | OAuthLogin


class SaslListener(NamedTuple):
    """How the clients of one listener authenticate."""

    mechanisms: tuple[str, ...]
    max_receive_size: int = 524_288
    max_reauth_ms: Mapping[str, int] = MappingProxyType({})  # by mechanism; 0 is no bound
    plain_users: Mapping[str, str] = MappingProxyType({})  # passwords by name
    token_rules: SignedTokens | UnsecuredTokens | None = None  # of OAUTHBEARER

    def __repr__(self) -> str:
        return f"SaslListener({', '.join(self.mechanisms)}, [hidden])"


def sasl_listener(values: Values, listener_name: str) -> SaslListener:
    """`values` are typed, by full key; ConfigError says what is missing."""
    mechanisms = _mechanisms(values, listener_name)
    users: dict[str, str] = {}
    rules: SignedTokens | UnsecuredTokens | None = None
    for mechanism in mechanisms:
        entry = _jaas_entry(values, listener_name, mechanism)
        if mechanism == OAUTHBEARER:
            rules = token_rules(
                _look(values, listener_name, mechanism),
                {} if entry is None else entry.options,
                _of_mechanism(values, listener_name, mechanism, SERVER_HANDLER),
                f"listener {listener_name}",
            )
        elif values.get(_key(listener_name, mechanism, SERVER_HANDLER)):
            raise ConfigError(
                f"{_key(listener_name, mechanism, SERVER_HANDLER)}: {mechanism} has no handlers "
                "here; remove the key"
            )
        if mechanism == PLAIN:
            users = entry.plain_users if entry is not None else {}
            if not users:
                raise ConfigError(
                    f"{_key(listener_name, PLAIN, JAAS_CONFIG)} has no users; set it to "
                    f'{MODULES[PLAIN]} required user_NAME="PASSWORD";'
                )
    return SaslListener(
        mechanisms,
        _integer(_of_listener(values, listener_name, MAX_RECEIVE_SIZE)),
        {
            mechanism: _integer(_of_mechanism(values, listener_name, mechanism, MAX_REAUTH_MS))
            for mechanism in mechanisms
        },
        users,
        rules,
    )


def inter_broker_login(values: Values, listener_name: str) -> AnyLogin:
    """What this broker logs in with at others, by their listener of that name."""
    mechanism = values[INTER_BROKER_MECHANISM]
    assert isinstance(mechanism, str)
    enabled = _mechanisms(values, listener_name)
    if mechanism not in enabled:
        raise InvalidValue(
            INTER_BROKER_MECHANISM,
            mechanism,
            f"the listener {listener_name}, by which brokers reach each other, has "
            f"{', '.join(enabled)}",
        )
    entry = _jaas_entry(values, listener_name, mechanism)
    key = _key(listener_name, mechanism, JAAS_CONFIG)
    if mechanism == OAUTHBEARER:
        options = {} if entry is None else entry.options
        return oauth_login(_look(values, listener_name, mechanism), options, key)
    return login_of(key, mechanism, entry)


def client_login(values: Values, provider: Callable[[], object] | str | None = None) -> AnyLogin:
    """What a client logs in with, by its keys; `provider` is its function that gets tokens."""
    mechanism, jaas_config = values["sasl.mechanism"], values[JAAS_CONFIG]
    assert isinstance(mechanism, str)
    assert jaas_config is None or isinstance(jaas_config, str)
    require_served("sasl.mechanism", (mechanism,))
    entry = None if not jaas_config else entry_for(JAAS_CONFIG, jaas_config, mechanism)
    if mechanism == OAUTHBEARER:
        options = {} if entry is None else entry.options
        return oauth_login(values.get, options, JAAS_CONFIG, provider=provider)
    return login_of(JAAS_CONFIG, mechanism, entry)


def login_of(key: str, mechanism: str, entry: JaasEntry | None) -> Login:
    options = {} if entry is None else entry.options
    is_token = options.get("tokenauth", "false").lower() == "true"
    if is_token and mechanism == PLAIN:
        raise ConfigError(f"{key}: tokenauth needs one of the mechanisms of SCRAM; set it")
    username, password = options.get("username"), options.get("password")
    if not username or not password:
        raise ConfigError(
            f"{key} has no username and password; set it to {MODULES[mechanism]} required "
            'username="NAME" password="PASSWORD";'
        )
    return Login(mechanism, username, password, is_token)


def require_served(key: str, mechanisms: Iterable[str]) -> None:
    for mechanism in mechanisms:
        if mechanism not in SERVED_MECHANISMS:
            raise InvalidValue(
                key,
                mechanism,
                f"only {', '.join(SERVED_MECHANISMS)} are supported here; set the key to one of "
                "them",
            )


def _mechanisms(values: Values, listener_name: str) -> tuple[str, ...]:
    found = _of_listener(values, listener_name, ENABLED_MECHANISMS)
    assert isinstance(found, tuple)
    key = _key(listener_name, None, ENABLED_MECHANISMS)
    require_served(key if key in values else ENABLED_MECHANISMS, found)
    if not found:
        raise ConfigError(f"{ENABLED_MECHANISMS}: {listener_name} needs at least one mechanism")
    return tuple(dict.fromkeys(found))


def _jaas_entry(values: Values, listener_name: str, mechanism: str) -> JaasEntry | None:
    text = _of_mechanism(values, listener_name, mechanism, JAAS_CONFIG)
    if not text:
        return None
    assert isinstance(text, str)
    own = _key(listener_name, mechanism, JAAS_CONFIG)
    if values.get(own) is None and MODULES[mechanism] not in text:
        return None  # what holds for all may be meant for another mechanism
    return entry_for(own if own in values else JAAS_CONFIG, text, mechanism)


def _look(values: Values, listener_name: str, mechanism: str) -> Look:
    return partial(_of_mechanism, values, listener_name, mechanism)


def _of_mechanism(values: Values, listener_name: str, mechanism: str, key: str) -> Value:
    own = values.get(_key(listener_name, mechanism, key))
    return own if own is not None else _of_listener(values, listener_name, key)


def _of_listener(values: Values, listener_name: str, key: str) -> Value:
    own = values.get(_key(listener_name, None, key))
    return own if own is not None else values.get(key)


def _key(listener_name: str, mechanism: str | None, key: str) -> str:
    middle = "" if mechanism is None else f"{mechanism.lower()}."
    return f"listener.name.{listener_name.lower()}.{middle}{key}"


def _integer(value: Value) -> int:
    assert isinstance(value, int)
    return value
