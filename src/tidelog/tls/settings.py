"""The ssl.* keys of one listener, or of a client, as typed values.

Secrets are not part of how settings print.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidelog.config.definition import ConfigError, Value

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import Endpoint

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"


class TlsConfigError(ConfigError):
    """Settings or files that TLS cannot be spoken with."""


class ClientAuth(StrEnum):
    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A key store (`kind` is "key") or a trust store ("trust")."""

    kind: str
    type: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)  # in PEM, of a key store
    certificates: str | None = field(default=None, repr=False)  # in PEM

    @property
    def is_set(self) -> bool:
        return any(each is not None for each in (self.location, self.key, self.certificates))

    def named(self, part: str) -> str:
        """The key that sets this part."""
        return f"ssl.{self.kind}store.{part}"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    key_store: StoreSettings
    trust_store: StoreSettings
    where: str = ""  # begins every error: the listener
    client_auth: ClientAuth = ClientAuth.NONE
    enabled_protocols: tuple[str, ...] = (TLS_1_2, TLS_1_3)
    cipher_suites: tuple[str, ...] = ()
    checks_host_name: bool = True
    principal_mapping_rules: str | None = None  # None: certificates name nobody here
    allow_dn_changes: bool = False
    allow_san_changes: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Value], where: str = "") -> TlsSettings:
        """Of Kafka's keys; those that only brokers have may be missing."""
        return cls(
            key_store=StoreSettings(
                kind="key",
                type=_text(values, "ssl.keystore.type") or "JKS",
                location=_text(values, "ssl.keystore.location"),
                password=_text(values, "ssl.keystore.password"),
                key_password=_text(values, "ssl.key.password"),
                key=_pem(values, "ssl.keystore.key"),
                certificates=_pem(values, "ssl.keystore.certificate.chain"),
            ),
            trust_store=StoreSettings(
                kind="trust",
                type=_text(values, "ssl.truststore.type") or "JKS",
                location=_text(values, "ssl.truststore.location"),
                password=_text(values, "ssl.truststore.password"),
                certificates=_pem(values, "ssl.truststore.certificates"),
            ),
            where=where,
            client_auth=ClientAuth(_text(values, "ssl.client.auth") or "none"),
            enabled_protocols=_list(values, "ssl.enabled.protocols"),
            cipher_suites=_list(values, "ssl.cipher.suites"),
            checks_host_name=_checks_host_name(values, where),
            principal_mapping_rules=_text(values, "ssl.principal.mapping.rules"),
            allow_dn_changes=values.get("ssl.allow.dn.changes") is True,
            allow_san_changes=values.get("ssl.allow.san.changes") is True,
        )

    @classmethod
    def of_listener(cls, config: BrokerConfig, endpoint: Endpoint) -> TlsSettings:
        settings = cls.of(config.tls_values(endpoint), f"listener {endpoint.listener_name}")
        if endpoint.needs_sasl:
            # Whoever authenticates by SASL has its name from there.
            return replace(settings, principal_mapping_rules=None)
        return settings

    def refused(self, text: str) -> TlsConfigError:
        return TlsConfigError(f"{self.where}: {text}" if self.where else text)


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values.get(name)
    assert value is None or isinstance(value, str), name
    return value or None


def _pem(values: Mapping[str, Value], name: str) -> str | None:
    """A properties file has it in one line, where \\n may stand for the ends of lines."""
    text = _text(values, name)
    return None if text is None else text.replace("\\n", "\n")


def _list(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    value = values.get(name)
    if isinstance(value, str):
        value = tuple(value.split(","))
    assert value is None or isinstance(value, tuple), name
    return tuple(item.strip() for item in value or () if item.strip())


def _checks_host_name(values: Mapping[str, Value], where: str) -> bool:
    """Unset means unset, as in Kafka: only an empty value turns the check off."""
    name = "ssl.endpoint.identification.algorithm"
    value = values.get(name)
    if value is None or value == "":
        return False
    if str(value).lower() == "https":
        return True
    raise TlsConfigError(
        f"{where + ': ' if where else ''}{name}={value}: must be https, or empty for no check of "
        "host names"
    )
