"""The configurations of Kafka's clients: `ProducerConfig`, `ConsumerConfig`, `AdminConfig`.

Each has Kafka's keys and defaults (`keys/client.py`). A key that no row has is refused with the
nearest known one, for a misspelt key would be a setting without effect; one that Kafka knows and
nothing here acts on is listed in `warnings`, and one that must not be passed over is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from tidelog.config.definition import (
    ConfigError,
    ConfigTable,
    InvalidValue,
    Value,
    to_text,
)
from tidelog.config.keys.client import (
    ACKS,
    ADMIN_KEYS,
    CONSUMER_KEYS,
    PRODUCER_KEYS,
    OffsetReset,
)
from tidelog.config.listeners import is_encrypted
from tidelog.config.oauth import OAUTHBEARER, TOKEN_PROVIDER
from tidelog.config.sasl import AnyLogin, client_login

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

IN_FLIGHT_MAX_WHEN_IDEMPOTENT: Final = 5

_PRODUCER_PACKAGE = "org.apache.kafka.clients.producer."
PARTITIONERS: Final = {
    "": "default",
    _PRODUCER_PACKAGE + "internals.DefaultPartitioner": "default",
    _PRODUCER_PACKAGE + "UniformStickyPartitioner": "sticky",
    _PRODUCER_PACKAGE + "RoundRobinPartitioner": "round-robin",
}


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Config = TypeVar("Config", bound="KafkaConfig")

HIDDEN: Final = "[hidden]"
METRICS_CONTEXT: Final = "metrics.context."


class KafkaConfig:
    """Checked values of all keys of one of Kafka's clients. Plain data: it may be pickled.

    `given` holds the texts of the keys that were set, `warnings` what has no effect.
    `token_provider` is the one value that may be no text: a function of the caller's.
    """

    __slots__ = ("given", "token_provider", "values", "warnings")

    TABLE: ClassVar[ConfigTable]

    def __init__(self, options: Mapping[str, object]) -> None:
        """Raises ConfigError for a value that no client could work with."""
        provider = options.get(TOKEN_PROVIDER)
        self.token_provider: Callable[[], Any] | None = provider if callable(provider) else None
        self.given = {
            name: _text_of(value)
            for name, value in options.items()
            if name != TOKEN_PROVIDER or not callable(value)
        }
        self.warnings: list[str] = []
        self.values: dict[str, Value] = self.TABLE.defaults()
        for name, text in self.given.items():
            self._set(name, text)
        self._require_consistent()

    @classmethod
    def of(
        cls: type[Config],
        options: Mapping[str, object] | Config | None,
        keywords: Mapping[str, object] | None = None,
    ) -> Config:
        """From a mapping of Kafka's keys and from keywords with underscores for their dots."""
        given = options.options if isinstance(options, KafkaConfig) else options or {}
        named = {name.replace("_", "."): value for name, value in (keywords or {}).items()}
        return cls({**given, **named})

    @property
    def options(self) -> dict[str, object]:
        """What an equal configuration is made of."""
        if self.token_provider is None:
            return {**self.given}
        return {**self.given, TOKEN_PROVIDER: self.token_provider}

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __reduce__(self) -> tuple[type[KafkaConfig], tuple[dict[str, object]]]:
        return type(self), (self.options,)

    def __repr__(self) -> str:
        shown = {name: self._shown(name, text) for name, text in self.given.items()}
        return f"{type(self).__name__}({shown})"

    def _shown(self, name: str, text: str) -> str:
        key = self.TABLE.get(name)
        return HIDDEN if key is not None and key.sensitive else text

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), (name, value)
        return value

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str), (name, value)
        return value

    def text_or_none(self, name: str) -> str | None:
        value = self.values[name]
        assert value is None or isinstance(value, str), (name, value)
        return value

    def flag(self, name: str) -> bool:
        return self.values[name] is True

    def strings(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        assert isinstance(value, tuple), (name, value)
        return tuple(item for item in value if item)

    def seconds(self, name: str) -> float:
        """Of a key that ends in .ms."""
        return self.integer(name) / 1000

    @property
    def bootstrap_servers(self) -> list[Address]:
        return [parse_address(server) for server in self.strings("bootstrap.servers")]

    @property
    def security_protocol(self) -> str:
        return self.text("security.protocol").upper()

    @property
    def is_encrypted(self) -> bool:
        return is_encrypted(self.security_protocol)

    @property
    def isolation_level(self) -> int:
        is_committed = self.values.get("isolation.level") == "read_committed"
        return READ_COMMITTED if is_committed else READ_UNCOMMITTED

    @property
    def rebootstraps(self) -> bool:
        return self.text("metadata.recovery.strategy").lower() == "rebootstrap"

    @property
    def login(self) -> AnyLogin | None:
        """What to log in with, where security.protocol has SASL; ConfigError if it is missing."""
        if not self.text("security.protocol").upper().startswith("SASL_"):
            return None
        provider = self.token_provider or self.text_or_none(TOKEN_PROVIDER)
        return client_login(self.values, provider)

    def _set(self, name: str, text: str) -> None:
        if name.startswith(METRICS_CONTEXT):
            self.warnings.append(f"{name} is accepted and has no effect")
            return
        key = self.TABLE.must_get(name)
        value = key.parse(text)
        if key.refuses(value):
            raise InvalidValue(name, HIDDEN if key.sensitive else text, key.effect.reason)
        if key.is_harmless:
            self.warnings.append(f"{name} is accepted and has no effect: {key.effect.reason}")
        self.values[name] = value

    def _require_consistent(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is not set: it names the brokers to connect to")
        self._warn_of_unused_tls()
        login = self.login
        if login is None and "sasl.jaas.config" in self.given:
            self.warnings.append(
                "sasl.jaas.config is accepted and has no effect: security.protocol is "
                f"{self.security_protocol}"
            )
        if login is None or login.mechanism != OAUTHBEARER:
            self.warnings += [
                f"{name} is accepted and has no effect: OAUTHBEARER alone uses it"
                for name in self.options
                if name.startswith(("sasl.login.", "sasl.oauthbearer.", TOKEN_PROVIDER))
                and not self.TABLE[name].is_harmless
            ]

    def _warn_of_unused_tls(self) -> None:
        unused = [
            name
            for name in self.given
            if name.startswith("ssl.") and not self.TABLE[name].is_harmless
        ]
        if unused and not self.is_encrypted:
            self.warnings.append(
                f"{', '.join(unused)} have no effect, because security.protocol is "
                f"{self.security_protocol}"
            )


class ProducerConfig(KafkaConfig):
    __slots__ = ()

    TABLE = ConfigTable(PRODUCER_KEYS)

    @property
    def acks(self) -> int:
        return ACKS[self.text("acks")]

    @property
    def is_transactional(self) -> bool:
        return self.values["transactional.id"] is not None

    @property
    def is_idempotent(self) -> bool:
        """Given up silently, as in Kafka, when other keys alone were set against it."""
        if not self.flag("enable.idempotence"):
            return False
        in_flight = self.integer("max.in.flight.requests.per.connection")
        return (
            self.acks == -1
            and self.integer("retries") > 0
            and in_flight <= IN_FLIGHT_MAX_WHEN_IDEMPOTENT
        )

    @property
    def in_flight_max(self) -> int:
        return self.integer("max.in.flight.requests.per.connection")

    @property
    def partitioner(self) -> str:
        """`default`, `sticky` or `round-robin`."""
        return PARTITIONERS[self.text_or_none("partitioner.class") or ""]

    def _require_consistent(self) -> None:
        super()._require_consistent()
        if (self.text_or_none("partitioner.class") or "") not in PARTITIONERS:
            raise InvalidValue(
                "partitioner.class",
                self.text("partitioner.class"),
                f"must be unset or one of {', '.join(filter(None, PARTITIONERS))}; a partitioner "
                "of your own is given to the constructor",
            )
        self._require_idempotence_possible()
        self._require_time_to_deliver()

    def _require_idempotence_possible(self) -> None:
        """An explicit wish for idempotence, or transactions, may not be undone by another key."""
        wished = "enable.idempotence" in self.given and self.flag("enable.idempotence")
        if self.is_transactional and not self.flag("enable.idempotence"):
            raise InvalidValue("enable.idempotence", "false", "transactional.id needs true")
        if self.is_idempotent or not (wished or self.is_transactional):
            return
        why = "enable.idempotence=true needs" if wished else "transactional.id needs"
        if self.acks != -1:
            raise InvalidValue("acks", self.text("acks"), f"{why} all")
        if self.integer("retries") == 0:
            raise InvalidValue("retries", 0, f"{why} at least 1")
        raise InvalidValue(
            "max.in.flight.requests.per.connection",
            self.in_flight_max,
            f"{why} at most {IN_FLIGHT_MAX_WHEN_IDEMPOTENT}",
        )

    def _require_time_to_deliver(self) -> None:
        """As in Kafka, a default gives way and a wish is refused."""
        needed = min(self.integer("linger.ms") + self.integer("request.timeout.ms"), (1 << 31) - 1)
        if self.integer("delivery.timeout.ms") >= needed:
            return
        if "delivery.timeout.ms" in self.given:
            raise InvalidValue(
                "delivery.timeout.ms",
                self.integer("delivery.timeout.ms"),
                f"must be at least linger.ms + request.timeout.ms, which is {needed}",
            )
        self.values["delivery.timeout.ms"] = needed


class OffsetResetPolicy(NamedTuple):
    kind: str  # earliest, latest, none or by_duration
    duration_ms: int = 0


class ConsumerConfig(KafkaConfig):
    __slots__ = ()

    TABLE = ConfigTable(CONSUMER_KEYS)

    # With the consumer protocol the broker decides these.
    CLASSIC_ONLY: ClassVar = (
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "partition.assignment.strategy",
    )

    @property
    def group_id(self) -> str | None:
        return self.text_or_none("group.id")

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.text("group.protocol").lower() == "consumer"

    @property
    def auto_commits(self) -> bool:
        """Without a group there is nothing to commit to, so only a wish for it counts."""
        return self.flag("enable.auto.commit") and self.group_id is not None

    @property
    def offset_reset(self) -> OffsetResetPolicy:
        text = self.text("auto.offset.reset")
        if text.startswith(OffsetReset.BY_DURATION):
            after_ms = OffsetReset().duration_ms("auto.offset.reset", text)
            return OffsetResetPolicy("by_duration", after_ms)
        return OffsetResetPolicy(text)

    def _require_consistent(self) -> None:
        super()._require_consistent()
        if self.group_id is None and self.given.get("enable.auto.commit", "").lower() == "true":
            raise InvalidValue("enable.auto.commit", "true", "cannot be true without a group.id")
        if self.uses_consumer_protocol:
            for name in self.CLASSIC_ONLY:
                if name in self.given:
                    raise InvalidValue(
                        name, self.given[name], "cannot be set when group.protocol=CONSUMER"
                    )
        elif self.text_or_none("group.remote.assignor") is not None:
            raise InvalidValue(
                "group.remote.assignor",
                self.text("group.remote.assignor"),
                "cannot be set when group.protocol=CLASSIC",
            )


class AdminConfig(KafkaConfig):
    __slots__ = ()

    TABLE = ConfigTable(ADMIN_KEYS)


def parse_address(text: str) -> Address:
    """host:port, with an IPv6 host in brackets; a protocol before it is allowed, as in Kafka."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidValue("bootstrap.servers", text, "must be host:port")
    return Address(host.strip("[]"), int(port))


def _text_of(value: object) -> str:
    if isinstance(value, bool | int | float | str | None):
        return to_text(value) or ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
