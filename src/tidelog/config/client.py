"""The configurations of Kafka's clients: `ProducerConfig`, `ConsumerConfig`, `AdminConfig`.

Each has Kafka's keys and defaults (`keys/client.py`). A key that no row has is refused with the
nearest known one, for a misspelt key would be a setting without effect; one that Kafka knows and
nothing here acts on is listed in `warnings`, and one that must not be passed over is refused.

`ClientConfig` is the columnar client's, for reading and for writing alike. Two of its defaults
differ from Kafka's, because rows there come and go a column at a time and nothing is gained by
small pieces: `max.partition.fetch.bytes` (8 MiB, Kafka 1 MiB) and `batch.size` (512 KiB, Kafka
16 KiB).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, TypeVar

from tidelog.config.definition import (
    BOOLEAN,
    CLASS,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    STRING,
    ConfigError,
    ConfigTable,
    InvalidValue,
    Key,
    OneOf,
    Value,
    at_least,
    between,
    harmless,
    to_text,
)
from tidelog.config.keys.client import (
    ACKS,
    ADMIN_KEYS,
    COMPRESSION_TYPES,
    CONSUMER_KEYS,
    PRODUCER_KEYS,
    SECURITY_PROTOCOLS,
    OffsetReset,
)

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

KEYS: Final = (
    Key(
        "bootstrap.servers",
        LIST,
        None,
        "host:port of the brokers to ask first for all others.",
        importance=HIGH,
    ),
    Key("client.id", STRING, "", "The name brokers log requests of this client under."),
    Key(
        "security.protocol",
        STRING,
        "PLAINTEXT",
        "How to speak to brokers; only PLAINTEXT is there.",
        valid=OneOf(*SECURITY_PROTOCOLS, ignore_case=True),
    ),
    Key(
        "request.timeout.ms",
        INT,
        30_000,
        "How long to wait for the answer to a request.",
        valid=at_least(0),
    ),
    Key(
        "default.api.timeout.ms",
        INT,
        60_000,
        "How long a call may go on retrying without any progress.",
        valid=at_least(0),
    ),
    Key(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "How long to wait for a connection.",
        valid=at_least(1),
    ),
    Key(
        "metadata.max.age.ms",
        LONG,
        300_000,
        "Age at which metadata is asked for again without need.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "reconnect.backoff.ms",
        LONG,
        50,
        "First wait before another try to connect.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "reconnect.backoff.max.ms",
        LONG,
        1_000,
        "Longest wait before another try to connect.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "retry.backoff.ms",
        LONG,
        100,
        "First wait before a failed request is sent again.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "retry.backoff.max.ms",
        LONG,
        1_000,
        "Longest wait before a failed request is sent again.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "send.buffer.bytes",
        INT,
        -1,
        "SO_SNDBUF; -1 leaves it to the operating system.",
        valid=at_least(-1),
    ),
    Key(
        "receive.buffer.bytes",
        INT,
        -1,
        "SO_RCVBUF; -1 leaves it to the operating system.",
        valid=at_least(-1),
    ),
    Key(
        "fetch.min.bytes",
        INT,
        1,
        "Fewest bytes a fetch waits for.",
        valid=at_least(0),
        effect=harmless("A range is known to be there, so a fetch waits for one byte."),
    ),
    Key(
        "fetch.max.bytes",
        INT,
        50 * 1024 * 1024,
        "Most bytes of one fetch over all partitions (at least one batch).",
        valid=at_least(0),
    ),
    Key(
        "fetch.max.wait.ms",
        INT,
        500,
        "How long a broker may wait for fetch.min.bytes.",
        valid=at_least(0),
    ),
    Key(
        "max.partition.fetch.bytes",
        INT,
        8 * 1024 * 1024,
        "Most bytes of one fetch from one partition (at least one batch). Kafka's default: 1 MiB.",
        valid=at_least(0),
    ),
    Key("check.crcs", BOOLEAN, True, "Verify the checksum of every batch read."),
    Key(
        "isolation.level",
        STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are seen.",
        valid=OneOf("read_committed", "read_uncommitted"),
    ),
    Key(
        "acks",
        STRING,
        "all",
        "Who must have a batch before it counts as written.",
        valid=OneOf(*ACKS),
    ),
    Key(
        "enable.idempotence",
        BOOLEAN,
        True,
        "Write each record once although requests are retried; needs acks=all.",
    ),
    Key(
        "compression.type",
        STRING,
        "none",
        "Codec of the batches written.",
        valid=OneOf(*COMPRESSION_TYPES),
    ),
    Key("compression.gzip.level", INT, -1, "Level of gzip.", valid=between(-1, 9)),
    Key("compression.lz4.level", INT, 9, "Level of lz4.", valid=between(1, 17)),
    Key("compression.zstd.level", INT, 3, "Level of zstd.", valid=between(-131_072, 22)),
    Key(
        "batch.size",
        INT,
        512 * 1024,
        "Most bytes of a batch before compression (at least one record). Kafka's default: 16 KiB.",
        valid=at_least(0),
    ),
    Key(
        "linger.ms",
        LONG,
        0,
        "How long a producer gathers records before it sends them.",
        valid=at_least(0),
        effect=harmless("Rows come in large pieces and are sent at once."),
    ),
    Key(
        "max.request.size",
        INT,
        1024 * 1024,
        "Most bytes of one produce request, so of one record too.",
        valid=at_least(0),
    ),
    Key(
        "buffer.memory",
        LONG,
        32 * 1024 * 1024,
        "Most bytes encoded and not yet acknowledged; beyond it writing waits.",
        valid=at_least(0),
    ),
    Key(
        "max.block.ms",
        LONG,
        60_000,
        "How long writing may wait for the metadata of a topic.",
        valid=at_least(0),
    ),
    Key(
        "delivery.timeout.ms",
        INT,
        120_000,
        "How long a batch may take from encoding to its acknowledgement, retries included.",
        valid=at_least(0),
    ),
    Key(
        "retries",
        INT,
        INT_MAX,
        "How often a batch may be sent again within delivery.timeout.ms.",
        valid=between(0, INT_MAX),
    ),
    Key(
        "max.in.flight.requests.per.connection",
        INT,
        5,
        "Unanswered produce requests of a connection; at most 5 when idempotent.",
        valid=at_least(1),
        importance=LOW,
    ),
    Key(
        "partitioner.class",
        CLASS,
        "",
        "Empty: murmur2 of the key, without a key one partition a batch. Also Kafka's "
        "RoundRobinPartitioner and UniformStickyPartitioner.",
    ),
    Key("partitioner.ignore.keys", BOOLEAN, False, "Treat every row as one without a key."),
    *(
        Key(
            name,
            STRING,
            None,
            "Known to Kafka's clients.",
            effect=harmless("Nothing here acts on it."),
        )
        for name in (
            "allow.auto.create.topics",
            "auto.commit.interval.ms",
            "auto.include.jmx.reporter",
            "auto.offset.reset",
            "bootstrap.controllers",
            "client.dns.lookup",
            "client.rack",
            "connections.max.idle.ms",
            "enable.auto.commit",
            "enable.metrics.push",
            "exclude.internal.topics",
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "interceptor.classes",
            "key.deserializer",
            "key.serializer",
            "max.poll.interval.ms",
            "max.poll.records",
            "metadata.max.idle.ms",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "partition.assignment.strategy",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "security.providers",
            "session.timeout.ms",
            "share.acknowledgement.mode",
            "socket.connection.setup.timeout.max.ms",
            "transaction.timeout.ms",
            "value.deserializer",
            "value.serializer",
        )
    ),
    Key("transactional.id", STRING, None, "Not supported yet: writes here have no transactions."),
    *(
        Key(
            name,
            STRING,
            None,
            "Known to Kafka's clients.",
            effect=harmless("Used by TLS and SASL alone, and security.protocol refuses those."),
        )
        for name in (
            "sasl.client.callback.handler.class",
            "sasl.jaas.config",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.service.name",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.mechanism",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.header.urlencode",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
            "sasl.oauthbearer.token.endpoint.url",
            "ssl.cipher.suites",
            "ssl.enabled.protocols",
            "ssl.endpoint.identification.algorithm",
            "ssl.engine.factory.class",
            "ssl.key.password",
            "ssl.keymanager.algorithm",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.keystore.location",
            "ssl.keystore.password",
            "ssl.keystore.type",
            "ssl.protocol",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
            "ssl.truststore.certificates",
            "ssl.truststore.location",
            "ssl.truststore.password",
            "ssl.truststore.type",
        )
    ),
)

CLIENT_TABLE: Final = ConfigTable(KEYS)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClientConfig:
    """Checked values of all keys. Plain data: it may be pickled into worker processes."""

    __slots__ = ("given", "values", "warnings")

    def __init__(self, options: Mapping[str, object]) -> None:
        """Raises ConfigError for a value that no client could work with."""
        self.given = {name: _text_of(value) for name, value in options.items()}
        self.warnings: list[str] = []
        self.values: dict[str, Value] = CLIENT_TABLE.defaults()
        for name, text in self.given.items():
            self._set(name, text)
        self._require_consistent()

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def __reduce__(self) -> tuple[type[ClientConfig], tuple[dict[str, str]]]:
        return ClientConfig, (self.given,)

    def __repr__(self) -> str:
        return f"ClientConfig({self.given})"

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), (name, value)
        return value

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str), (name, value)
        return value

    def flag(self, name: str) -> bool:
        return self.values[name] is True

    @property
    def bootstrap_servers(self) -> list[Address]:
        servers = self.values["bootstrap.servers"]
        assert isinstance(servers, tuple), servers
        return [parse_address(server) for server in servers if server]

    @property
    def isolation_level(self) -> int:
        is_committed = self.values["isolation.level"] == "read_committed"
        return READ_COMMITTED if is_committed else READ_UNCOMMITTED

    @property
    def acks(self) -> int:
        return ACKS[self.text("acks")]

    @property
    def is_idempotent(self) -> bool:
        """Given up silently, as in Kafka, when only acks was set to something else."""
        return self.flag("enable.idempotence") and self.acks == -1

    @property
    def in_flight_max(self) -> int:
        wanted = self.integer("max.in.flight.requests.per.connection")
        return min(wanted, IN_FLIGHT_MAX_WHEN_IDEMPOTENT) if self.is_idempotent else wanted

    @property
    def partitioner(self) -> str:
        """`default`, `sticky` or `round-robin`."""
        name = PARTITIONERS[self.text("partitioner.class")]
        if name == "default" and self.flag("partitioner.ignore.keys"):
            return "sticky"
        return name

    def _set(self, name: str, text: str) -> None:
        key = CLIENT_TABLE.must_get(name)
        if key.is_harmless:
            self.warnings.append(f"{name} is accepted and has no effect")
        self.values[name] = key.parse(text)

    def _require_consistent(self) -> None:
        if not self.values["bootstrap.servers"] or not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is not set: it names the brokers to connect to")
        protocol = self.text("security.protocol").upper()
        if protocol != "PLAINTEXT":
            raise InvalidValue(
                "security.protocol", protocol, "only PLAINTEXT is supported by this client"
            )
        if self.values["transactional.id"] is not None:
            raise InvalidValue(
                "transactional.id",
                self.values["transactional.id"],
                "this client has no transactions yet; leave it out",
            )
        if self.text("partitioner.class") not in PARTITIONERS:
            raise InvalidValue(
                "partitioner.class",
                self.text("partitioner.class"),
                f"must be unset or one of {', '.join(filter(None, PARTITIONERS))}",
            )
        self._require_idempotence_possible()

    def _require_idempotence_possible(self) -> None:
        """An explicit wish for idempotence may not be taken back by another key."""
        if not self.flag("enable.idempotence") or "enable.idempotence" not in self.given:
            return
        if self.acks != -1:
            raise InvalidValue("acks", self.text("acks"), "enable.idempotence=true needs all")
        in_flight = self.integer("max.in.flight.requests.per.connection")
        if in_flight > IN_FLIGHT_MAX_WHEN_IDEMPOTENT:
            raise InvalidValue(
                "max.in.flight.requests.per.connection",
                in_flight,
                f"enable.idempotence=true needs at most {IN_FLIGHT_MAX_WHEN_IDEMPOTENT}",
            )


Config = TypeVar("Config", bound="KafkaConfig")

HIDDEN: Final = "[hidden]"
METRICS_CONTEXT: Final = "metrics.context."


class KafkaConfig:
    """Checked values of all keys of one of Kafka's clients. Plain data: it may be pickled.

    `given` holds the texts of the keys that were set, `warnings` what has no effect.
    """

    __slots__ = ("given", "values", "warnings")

    TABLE: ClassVar[ConfigTable]

    def __init__(self, options: Mapping[str, object]) -> None:
        """Raises ConfigError for a value that no client could work with."""
        self.given = {name: _text_of(value) for name, value in options.items()}
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
        given = options.given if isinstance(options, KafkaConfig) else options or {}
        named = {name.replace("_", "."): value for name, value in (keywords or {}).items()}
        return cls({**given, **named})

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __reduce__(self) -> tuple[type[KafkaConfig], tuple[dict[str, str]]]:
        return type(self), (self.given,)

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
    def isolation_level(self) -> int:
        is_committed = self.values.get("isolation.level") == "read_committed"
        return READ_COMMITTED if is_committed else READ_UNCOMMITTED

    @property
    def rebootstraps(self) -> bool:
        return self.text("metadata.recovery.strategy").lower() == "rebootstrap"

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
        protocol = self.text("security.protocol").upper()
        if protocol != "PLAINTEXT":
            raise InvalidValue(
                "security.protocol", protocol, "only PLAINTEXT is supported by this client"
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
