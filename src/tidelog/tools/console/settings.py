"""`ConsoleSettings`: what a console was told at its start. Plain data, never changed."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tidelog.config.definition import ConfigError

DEFAULT_PORT: Final = 8080
SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
PASSWORD_MECHANISMS: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
JAAS_CONFIG: Final = "sasl.jaas.config"


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the console listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """`http://HOST:PORT`, `HOST:PORT` or `HOST`; ConfigError says what is wrong."""
    address = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = address.port
    except ValueError as error:
        raise ConfigError(f"{text}: {error}") from None
    if address.scheme != "http" or address.path not in ("", "/") or not address.hostname:
        raise ConfigError(f"{text} is no address such as http://127.0.0.1:{DEFAULT_PORT}")
    if "@" in address.netloc or address.query or address.fragment:
        raise ConfigError(f"{text} is no address such as http://127.0.0.1:{DEFAULT_PORT}")
    return Listener(address.hostname, DEFAULT_PORT if port is None else port)


class LoginMode(Enum):
    NOBODY = "nobody logs in"
    CONSOLE = "the console's own user"
    CLUSTER = "users of the cluster, by SASL"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`properties` are Kafka's client keys, of producers, consumers and admin clients alike."""

    properties: Mapping[str, str]
    listener: Listener = Listener("127.0.0.1", DEFAULT_PORT)
    can_write: bool = False
    metrics_urls: tuple[str, ...] = ()
    pipelines: Path | None = None  # the folder of the project whose pipelines are shown
    logs: tuple[Path, ...] = ()  # data directories of brokers, to look into
    schemas: str | None = None  # a schema registry's URL, or a folder of schemas
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host_names: frozenset[str] = frozenset()  # by which browsers may call the console

    @property
    def login_mode(self) -> LoginMode:
        if self.user is not None:
            return LoginMode.CONSOLE
        if self.wants_sasl and not (self.listener.is_loopback and self.has_credentials):
            return LoginMode.CLUSTER
        return LoginMode.NOBODY

    @property
    def wants_sasl(self) -> bool:
        return self.properties.get("security.protocol", "PLAINTEXT").upper() in SASL_PROTOCOLS

    @property
    def has_credentials(self) -> bool:
        return bool(self.properties.get(JAAS_CONFIG)) or self.mechanism not in PASSWORD_MECHANISMS

    @property
    def mechanism(self) -> str:
        return self.properties.get("sasl.mechanism", "GSSAPI")

    def require_safe(self) -> None:
        """Raises ConfigError for what would let everybody in, or nobody."""
        if self.user is not None and not self.password:
            raise ConfigError("the console's user has no password; give --password-file too")
        mode = self.login_mode
        if mode is LoginMode.NOBODY and not self.listener.is_loopback:
            raise ConfigError(
                f"{self.listener} is not on the loopback interface, and nobody would have to log "
                "in; give --user and --password-file, or connect to a SASL listener of the cluster"
            )
        if mode is LoginMode.CLUSTER and self.mechanism not in PASSWORD_MECHANISMS:
            raise ConfigError(
                f"sasl.mechanism {self.mechanism} has no passwords to log in with; set it to "
                f"{', '.join(sorted(PASSWORD_MECHANISMS))}, or give --user and --password-file"
            )
