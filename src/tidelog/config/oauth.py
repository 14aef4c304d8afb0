"""What a configuration says about OAUTHBEARER: how a listener judges tokens (`SignedTokens`,
`UnsecuredTokens`), and where whoever logs in gets them (`OAuthLogin`).

Keys are Kafka's (KIP-255, KIP-768). The login module's options are the client's credentials
(clientId, clientSecret, scope), extensions (extension_NAME) and the ssl.* keys that the endpoint is
called with.

Tokens without a signature are for development. A listener takes them only if one of the options
unsecuredValidator... asks for it, or Kafka's handler for such tokens is named; in Kafka they are
the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.config.definition import ConfigError, InvalidValue, Value

OAUTHBEARER: Final = "OAUTHBEARER"

JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
TOKEN_PROVIDER: Final = "tidelog.oauthbearer.token.provider"
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
# What a single listener may have of its own, beside what all mechanisms have.
OAUTH_LISTENER_KEYS: Final = (
    SERVER_HANDLER,
    LOGIN_HANDLER,
    JWKS_URL,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    TOKEN_URL,
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.buffer.seconds",
)

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
# Kafka's handlers whose work is done here. Nothing is loaded by these names.
SIGNED_HANDLERS: Final = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_HANDLER: Final = (
    f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
SERVER_HANDLERS: Final = (*SIGNED_HANDLERS, UNSECURED_HANDLER)
LOGIN_HANDLERS: Final = (
    f"{_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
)

UNSECURED_PREFIX: Final = "unsecuredValidator"
UNSECURED_LOGIN_PREFIX: Final = "unsecuredLogin"
EXTENSION_PREFIX: Final = "extension_"
TLS_PREFIX: Final = "ssl."
CREDENTIAL_OPTIONS: Final = ("clientId", "clientSecret", "scope")
UNSECURED_OPTIONS: Final = (
    f"{UNSECURED_PREFIX}PrincipalClaimName",
    f"{UNSECURED_PREFIX}ScopeClaimName",
    f"{UNSECURED_PREFIX}RequiredScope",
    f"{UNSECURED_PREFIX}AllowableClockSkewMs",
)
DEFAULT_TIMEOUT_MS: Final = 10_000  # where Kafka waits for ever

_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")

Look = Callable[
    [str], Value
]  # the value of a key, as a listener and mechanism, or a client, has it
Options = Mapping[str, str]


class Endpoint(NamedTuple):
    """Where keys or tokens come from: a file, or a server and how it is called."""

    key: str  # that has the URL
    url: str
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    connect_timeout_ms: int
    read_timeout_ms: int
    tls: Options  # ssl.* keys

    def __repr__(self) -> str:
        return f"Endpoint({self.url})"

    @property
    def path_or_none(self) -> str | None:
        """Of a file."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None

    @property
    def is_in_the_clear(self) -> bool:
        """Whether somebody between here and there could answer in its place."""
        parts = urlsplit(self.url)
        return parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost")


class SignedTokens(NamedTuple):
    """Tokens must be signed by a key of the key set."""

    jwks: Endpoint
    refresh_ms: int = 3_600_000
    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    clock_skew_seconds: int = 30
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"


class UnsecuredTokens(NamedTuple):
    """Whoever writes a name into a token is believed."""

    principal_claim_name: str = "sub"
    scope_claim_name: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


class RefreshSettings(NamedTuple):
    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: int = 60
    buffer_seconds: int = 300


class OAuthLogin(NamedTuple):
    """What somebody logs in with who has tokens. Either an endpoint or a provider is set."""

    endpoint: Endpoint | None = None
    client_id: str = ""
    client_secret: str = ""
    scope: str | None = None
    urlencode_header: bool = False
    extensions: Options = MappingProxyType({})
    refresh: RefreshSettings = RefreshSettings()
    provider: Callable[[], object] | str | None = None  # a function, or module:function

    def __repr__(self) -> str:
        return f"OAuthLogin({self.endpoint or self.provider}, {self.client_id!r}, [hidden])"

    @property
    def mechanism(self) -> str:
        return OAUTHBEARER


def token_rules(
    look: Look, options: Options, handler: Value, where: str
) -> SignedTokens | UnsecuredTokens:
    """How a listener judges tokens; ConfigError unless that is said. `where` names it."""
    _require_known(where, options)
    url = look(JWKS_URL)
    asks_unsecured = [name for name in options if name.startswith(UNSECURED_PREFIX)]
    if handler == UNSECURED_HANDLER:
        asks_unsecured.append(SERVER_HANDLER)
    if not asks_unsecured:
        if not url:
            raise ConfigError(
                f"{where}: {OAUTHBEARER} needs {JWKS_URL}, the keys that tokens are signed with; "
                "set it to a file:// or https:// URL of a JSON Web Key Set"
            )
        return _signed(look, options)
    if url or handler in SIGNED_HANDLERS:
        raise ConfigError(
            f"{where}: {asks_unsecured[0]} would let everybody in, whatever "
            f"{JWKS_URL} says; remove one of them"
        )
    return _unsecured(options, where)


def _signed(look: Look, options: Options) -> SignedTokens:
    audience = look("sasl.oauthbearer.expected.audience") or ()
    issuer = look("sasl.oauthbearer.expected.issuer") or None
    assert isinstance(audience, tuple)
    assert issuer is None or isinstance(issuer, str)
    jwks_keys = "sasl.oauthbearer.jwks.endpoint."
    return SignedTokens(
        _endpoint(look, options, JWKS_URL, f"{jwks_keys}retry.backoff"),
        _integer(look, f"{jwks_keys}refresh.ms", at_least=1),
        tuple(each for each in audience if each),
        issuer,
        _integer(look, "sasl.oauthbearer.clock.skew.seconds"),
        _claim_name(look, "sasl.oauthbearer.scope.claim.name"),
        _claim_name(look, "sasl.oauthbearer.sub.claim.name"),
    )


def _unsecured(options: Options, where: str) -> UnsecuredTokens:
    skew = options.get(f"{UNSECURED_PREFIX}AllowableClockSkewMs", "").strip() or "0"
    if not (skew.isascii() and skew.isdigit()):
        raise ConfigError(f"{where}: {UNSECURED_PREFIX}AllowableClockSkewMs must be a number of ms")
    return UnsecuredTokens(
        options.get(f"{UNSECURED_PREFIX}PrincipalClaimName", "").strip() or "sub",
        options.get(f"{UNSECURED_PREFIX}ScopeClaimName", "").strip() or "scope",
        tuple(options.get(f"{UNSECURED_PREFIX}RequiredScope", "").split()),
        int(skew),
    )


def oauth_login(
    look: Look,
    options: Options,
    where: str,
    *,
    provider: Callable[[], object] | str | None = None,
) -> OAuthLogin:
    """Of whoever logs in; ConfigError if there is no way to a token. `where` names the options."""
    _require_known(where, options)
    for name in options:
        if name.startswith(UNSECURED_LOGIN_PREFIX):
            raise ConfigError(
                f"{where}: {name}: no unsigned tokens are made here; set {TOKEN_URL}, or "
                f"{TOKEN_PROVIDER} to a function that returns one"
            )
    common = OAuthLogin(extensions=_extensions(options, where), refresh=_refresh(look))
    if provider:
        if look(TOKEN_URL):
            raise ConfigError(f"{TOKEN_PROVIDER} and {TOKEN_URL} are both set; remove one of them")
        if isinstance(provider, str) and not all(provider.partition(":")):
            raise InvalidValue(TOKEN_PROVIDER, provider, "must have the form module:function")
        return common._replace(provider=provider)
    if not look(TOKEN_URL):
        raise ConfigError(
            f"{OAUTHBEARER} needs {TOKEN_URL}, where tokens come from; set it to the token "
            "endpoint of the identity provider, or to the file:// URL of a token"
        )
    endpoint = _endpoint(look, options, TOKEN_URL, "sasl.login.retry.backoff")
    if endpoint.path_or_none is not None:
        return common._replace(endpoint=endpoint)
    client_id = (_text(look, CLIENT_ID) or options.get("clientId", "")).strip()
    client_secret = (_text(look, CLIENT_SECRET) or options.get("clientSecret", "")).strip()
    if not client_id or not client_secret:
        raise ConfigError(
            f"{where} has no clientId and clientSecret for {TOKEN_URL}; add them to the options of "
            "OAuthBearerLoginModule"
        )
    return common._replace(
        endpoint=endpoint,
        client_id=client_id,
        client_secret=client_secret,
        scope=(_text(look, SCOPE) or options.get("scope", "")).strip() or None,
        urlencode_header=look("sasl.oauthbearer.header.urlencode") is True,
    )


def _require_known(where: str, options: Options) -> None:
    for name in options:
        is_known = name in CREDENTIAL_OPTIONS or name in UNSECURED_OPTIONS
        if not is_known and not name.startswith(
            (EXTENSION_PREFIX, TLS_PREFIX, UNSECURED_LOGIN_PREFIX)
        ):
            known = ", ".join((*CREDENTIAL_OPTIONS, f"{EXTENSION_PREFIX}NAME", f"{TLS_PREFIX}*"))
            raise ConfigError(
                f"{where}: OAuthBearerLoginModule has no option {name}; it has {known}"
            )


def _extensions(options: Options, where: str) -> dict[str, str]:
    extensions = {
        name.removeprefix(EXTENSION_PREFIX): value
        for name, value in options.items()
        if name.startswith(EXTENSION_PREFIX)
    }
    for name, value in extensions.items():
        require_extension(where, name, value)
    return extensions


def require_extension(where: str, name: str, value: str) -> None:
    """ConfigError unless RFC 7628 has room for it."""
    if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
        raise ConfigError(f"{where}: an extension cannot have the name {name!r}; use letters")
    if not _EXTENSION_VALUE.fullmatch(value):
        raise ConfigError(f"{where}: the extension {name} has characters that cannot be sent")


def _refresh(look: Look) -> RefreshSettings:
    prefix = "sasl.login.refresh."
    factor, jitter = look(f"{prefix}window.factor"), look(f"{prefix}window.jitter")
    assert isinstance(factor, float)
    assert isinstance(jitter, float)
    return RefreshSettings(
        factor,
        jitter,
        _integer(look, f"{prefix}min.period.seconds"),
        _integer(look, f"{prefix}buffer.seconds"),
    )


def _endpoint(look: Look, options: Options, key: str, backoff: str) -> Endpoint:
    return Endpoint(
        key,
        _url(look, key),
        _integer(look, f"{backoff}.ms"),
        _integer(look, f"{backoff}.max.ms"),
        _timeout_ms(look, "sasl.login.connect.timeout.ms"),
        _timeout_ms(look, "sasl.login.read.timeout.ms"),
        {name: value for name, value in options.items() if name.startswith(TLS_PREFIX)},
    )


def _url(look: Look, key: str) -> str:
    text = (_text(look, key) or "").strip()
    try:
        parts = urlsplit(text)
        is_usable = parts.port != 0
    except ValueError as error:
        raise InvalidValue(key, text, f"is no URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{key}: a URL with a password in it is refused; it would be logged")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise InvalidValue(key, text, "must have the form file:///path")
    elif parts.scheme not in ("http", "https") or not parts.hostname or not is_usable:
        raise InvalidValue(key, text, "must be a URL that begins with https://, http:// or file://")
    return text


def _timeout_ms(look: Look, key: str) -> int:
    value = look(key)
    if value is None:
        return DEFAULT_TIMEOUT_MS
    assert isinstance(value, int)
    if value < 1:
        raise InvalidValue(key, value, "must be at least 1")
    return value


def _integer(look: Look, key: str, at_least: int = 0) -> int:
    value = look(key)
    assert isinstance(value, int), key
    if value < at_least:
        raise InvalidValue(key, value, f"must be at least {at_least}")
    return value


def _claim_name(look: Look, key: str) -> str:
    name = (_text(look, key) or "").strip()
    if not name:
        raise InvalidValue(key, "", "must name a claim")
    return name


def _text(look: Look, key: str) -> str | None:
    value = look(key)
    assert value is None or isinstance(value, str), key
    return value
