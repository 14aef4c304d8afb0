"""Keys of Kafka's producer, consumer and admin client, with Kafka 4.x's defaults.

`send.buffer.bytes` and `receive.buffer.bytes` alone differ: Kafka fixes them at 128 and 32 to
64 KiB, here the operating system grows them as needed unless they are set.

Rows of SASL mechanisms that are not spoken are known so that a configuration file of Kafka's
clients can be read; `sasl.mechanism` says what can be spoken.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.config.definition import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    PASSWORD,
    SHORT,
    STRING,
    Effect,
    InvalidValue,
    Key,
    NonEmpty,
    OneOf,
    RangeOr,
    Value,
    at_least,
    between,
    harmless,
    refused,
)
from tidelog.config.oauth import LOGIN_HANDLERS

ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
COMPRESSION_TYPES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_NO_METRICS: Final = harmless("No metrics reporters run in this client.")
_OPENSSL: Final = harmless("It chooses among Java's implementations; here OpenSSL does the work.")
_NO_KERBEROS: Final = harmless("GSSAPI alone uses it, and sasl.mechanism refuses that.")
_OF_BROKERS: Final = harmless("Brokers alone use it.")
_NO_ASSERTION: Final = refused(
    "a token is asked for with client id and secret only, not with an assertion; remove the key"
)
_NO_CLASS: Final = refused("Java classes cannot be loaded here; remove the key")
_ONLY_OAUTH_LOGIN: Final = refused(_NO_CLASS.reason, *LOGIN_HANDLERS)
_FIVE_MINUTES: Final = 5 * 60 * 1000
_NINE_MINUTES: Final = 9 * 60 * 1000
_MIB: Final = 1024 * 1024


_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d{1,9})?)S)?)?", re.IGNORECASE
)


class OffsetReset:
    """earliest, latest, none, or by_duration: and an ISO 8601 duration (KIP-1106)."""

    __slots__ = ()

    BY_DURATION: Final = "by_duration:"

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, str), value
        if value.startswith(self.BY_DURATION):
            self.duration_ms(name, value)
        elif value not in ("earliest", "latest", "none"):
            raise InvalidValue(name, value, f"String must be one of: {self}")

    def duration_ms(self, name: str, value: str) -> int:
        found = _DURATION.fullmatch(value.removeprefix(self.BY_DURATION))
        if found is None or not any(found.groups()):
            raise InvalidValue(name, value, "by_duration: needs a duration such as PT1H or P2D")
        days, hours, minutes, seconds = (
            float((part or "0").replace(",", ".")) for part in found.groups()
        )
        return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)

    def __str__(self) -> str:
        return "earliest, latest, none, by_duration:PnDTnHnMnS"


def _openssl(name: str, default: str | None = None) -> Key:
    return Key(name, STRING, default, "As in Kafka.", effect=_OPENSSL)


def _sasl(name: str, effect: Effect, default: str | None = None) -> Key:
    return Key(name, STRING, default, "As in Kafka.", effect=effect)


SECURITY_KEYS: Final = (
    Key(
        "security.protocol",
        STRING,
        "PLAINTEXT",
        "How to speak to brokers: with or without TLS, with or without SASL.",
        valid=OneOf(*SECURITY_PROTOCOLS, ignore_case=True),
    ),
    _openssl("security.providers"),
    Key(
        "ssl.cipher.suites",
        LIST,
        None,
        "Cipher suites that are offered, by Java's names; unset: those that OpenSSL takes for "
        "safe. Of TLS 1.3, all three or none.",
        importance=LOW,
    ),
    Key(
        "ssl.enabled.protocols",
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions that are offered: TLSv1.2, TLSv1.3.",
    ),
    Key(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "https: the broker's host name must be in its certificate. Empty: any certificate will do "
        "that is trusted.",
        importance=LOW,
    ),
    Key(
        "ssl.engine.factory.class",
        CLASS,
        None,
        "A Java class.",
        effect=refused("This client runs no Java classes."),
        importance=LOW,
    ),
    Key(
        "ssl.key.password",
        PASSWORD,
        None,
        "Password of an encrypted private key in PEM.",
        importance=HIGH,
    ),
    Key(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        "This client's certificate, and those between it and a CA, in PEM.",
        importance=HIGH,
    ),
    Key("ssl.keystore.key", PASSWORD, None, "This client's private key in PEM.", importance=HIGH),
    Key(
        "ssl.keystore.location",
        STRING,
        None,
        "File of the key store: this client's private key and its certificates, for brokers that "
        "want them.",
        importance=HIGH,
    ),
    Key(
        "ssl.keystore.password",
        PASSWORD,
        None,
        "Password of a key store of type PKCS12.",
        importance=HIGH,
    ),
    Key(
        "ssl.keystore.type",
        STRING,
        "JKS",
        "PEM, or PKCS12 (needs tidelog[tls]). A file of type JKS may be PKCS12 in truth; real ones "
        "are refused.",
    ),
    Key(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        "Certificates of who is trusted, in PEM.",
        importance=HIGH,
    ),
    Key(
        "ssl.truststore.location",
        STRING,
        None,
        "File of the trust store: the certificates of who is trusted. Without one, those that the "
        "operating system trusts.",
        importance=HIGH,
    ),
    Key(
        "ssl.truststore.password",
        PASSWORD,
        None,
        "Password of a trust store of type PKCS12.",
        importance=HIGH,
    ),
    Key(
        "ssl.truststore.type",
        STRING,
        "JKS",
        "PEM, or PKCS12 (needs tidelog[tls]); see ssl.keystore.type.",
    ),
    _openssl("ssl.keymanager.algorithm", "SunX509"),
    _openssl("ssl.protocol", "TLSv1.3"),
    _openssl("ssl.provider"),
    _openssl("ssl.secure.random.implementation"),
    _openssl("ssl.trustmanager.algorithm", "PKIX"),
    _sasl("sasl.client.callback.handler.class", _NO_CLASS),
    Key(
        "sasl.jaas.config",
        PASSWORD,
        None,
        "What to log in with: the login module of the mechanism, with username and password.",
    ),
    _sasl("sasl.kerberos.kinit.cmd", _NO_KERBEROS, "/usr/bin/kinit"),
    Key("sasl.kerberos.min.time.before.relogin", LONG, 60_000, "As in Kafka.", effect=_NO_KERBEROS),
    _sasl("sasl.kerberos.service.name", _NO_KERBEROS),
    Key("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "As in Kafka.", effect=_NO_KERBEROS),
    Key(
        "sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, "As in Kafka.", effect=_NO_KERBEROS
    ),
    _sasl("sasl.login.callback.handler.class", _ONLY_OAUTH_LOGIN),
    _sasl("sasl.login.class", _NO_CLASS),
    Key(
        "sasl.login.connect.timeout.ms",
        INT,
        None,
        "How long to wait for a connection to the token endpoint; 10 s if it is not set.",
    ),
    Key(
        "sasl.login.read.timeout.ms",
        INT,
        None,
        "How long to wait for the answer of the token endpoint; 10 s if it is not set.",
    ),
    Key(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        300,
        "Time left of a token at which the next login gets another.",
        valid=between(0, 3600),
    ),
    Key(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        60,
        "Shortest age of a token at which a login gets another.",
        valid=between(0, 900),
    ),
    Key(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        0.8,
        "Share of a token's life after which the next login gets another.",
        valid=between(0.5, 1.0),
    ),
    Key(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        0.05,
        "Random share of a token's life that is added to that.",
        valid=between(0.0, 0.25),
    ),
    Key(
        "sasl.login.retry.backoff.max.ms",
        LONG,
        10_000,
        "How long the token endpoint is tried for a login.",
    ),
    Key(
        "sasl.login.retry.backoff.ms",
        LONG,
        100,
        "First pause between two tries of the token endpoint; each is twice the last one.",
    ),
    Key(
        "sasl.mechanism",
        STRING,
        "GSSAPI",
        "How to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. The default is "
        "refused.",
    ),
    _sasl("sasl.oauthbearer.assertion.algorithm", _NO_ASSERTION, "RS256"),
    _sasl("sasl.oauthbearer.assertion.claim.aud", _NO_ASSERTION),
    Key(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        INT,
        300,
        "As in Kafka.",
        effect=_NO_ASSERTION,
    ),
    _sasl("sasl.oauthbearer.assertion.claim.iss", _NO_ASSERTION),
    Key(
        "sasl.oauthbearer.assertion.claim.jti.include",
        BOOLEAN,
        False,
        "As in Kafka.",
        effect=_NO_ASSERTION,
    ),
    Key(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        INT,
        60,
        "As in Kafka.",
        effect=_NO_ASSERTION,
    ),
    _sasl("sasl.oauthbearer.assertion.claim.sub", _NO_ASSERTION),
    _sasl("sasl.oauthbearer.assertion.file", _NO_ASSERTION),
    _sasl("sasl.oauthbearer.assertion.private.key.file", _NO_ASSERTION),
    Key(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        PASSWORD,
        None,
        "As in Kafka.",
        effect=_NO_ASSERTION,
    ),
    _sasl("sasl.oauthbearer.assertion.template.file", _NO_ASSERTION),
    Key(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        "What to ask the token endpoint with; else clientId of sasl.jaas.config.",
    ),
    Key(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        "What to ask the token endpoint with; else clientSecret of sasl.jaas.config.",
    ),
    Key("sasl.oauthbearer.clock.skew.seconds", INT, 30, "As in Kafka.", effect=_OF_BROKERS),
    _sasl("sasl.oauthbearer.expected.audience", _OF_BROKERS),
    _sasl("sasl.oauthbearer.expected.issuer", _OF_BROKERS),
    Key(
        "sasl.oauthbearer.header.urlencode",
        BOOLEAN,
        False,
        "Whether client id and secret are URL-encoded in the Authorization header, as RFC 6749 "
        "has it.",
    ),
    Key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        3_600_000,
        "As in Kafka.",
        effect=_OF_BROKERS,
    ),
    Key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        10_000,
        "As in Kafka.",
        effect=_OF_BROKERS,
    ),
    Key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        100,
        "As in Kafka.",
        effect=_OF_BROKERS,
    ),
    _sasl("sasl.oauthbearer.jwks.endpoint.url", _OF_BROKERS),
    _sasl("sasl.oauthbearer.jwt.retriever.class", _NO_CLASS),
    _sasl("sasl.oauthbearer.jwt.validator.class", _NO_CLASS),
    Key(
        "sasl.oauthbearer.scope",
        STRING,
        None,
        "The scope to ask the token endpoint for; else scope of sasl.jaas.config.",
    ),
    _sasl("sasl.oauthbearer.scope.claim.name", _OF_BROKERS, "scope"),
    _sasl("sasl.oauthbearer.sub.claim.name", _OF_BROKERS, "sub"),
    Key(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        None,
        "Where tokens come from: the https:// or http:// URL of a token endpoint, or the file:// "
        "URL of a token.",
    ),
    Key(
        "tidelog.oauthbearer.token.provider",
        STRING,
        None,
        "A function that returns a token, as module:function; in Python the function itself.",
    ),
)

SHARED_KEYS: Final = (
    Key(
        "bootstrap.servers",
        LIST,
        (),
        "host:port of the brokers to ask first for all others.",
        importance=HIGH,
    ),
    Key(
        "client.dns.lookup",
        STRING,
        "use_all_dns_ips",
        "Whether all addresses of a name are tried, or a bootstrap name stands for the canonical "
        "names of its addresses.",
        valid=OneOf("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    ),
    Key("client.id", STRING, "", "The name brokers log requests of this client under."),
    Key(
        "metadata.max.age.ms",
        LONG,
        _FIVE_MINUTES,
        "Age at which metadata is asked for again without need.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "metadata.recovery.strategy",
        STRING,
        "rebootstrap",
        "rebootstrap: go back to bootstrap.servers when no known broker can be reached. none: "
        "keep to the known brokers.",
        valid=OneOf("NONE", "REBOOTSTRAP", ignore_case=True),
        importance=LOW,
    ),
    Key(
        "metadata.recovery.rebootstrap.trigger.ms",
        LONG,
        _FIVE_MINUTES,
        "How long metadata may be out of reach before the client goes back to bootstrap.servers.",
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
        "reconnect.backoff.ms",
        LONG,
        50,
        "First wait before another try to connect to a broker.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "reconnect.backoff.max.ms",
        LONG,
        1_000,
        "Longest wait before another try to connect to a broker.",
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
        "request.timeout.ms",
        INT,
        30_000,
        "How long to wait for the answer to a request once it is sent.",
        valid=at_least(0),
    ),
    Key(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "How long to wait for a connection; it doubles with each failure in a row.",
        valid=at_least(1),
    ),
    Key(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        "Longest wait for a connection.",
        valid=at_least(1),
    ),
    Key(
        "config.providers",
        LIST,
        (),
        "Where values such as ${file:...} are looked up.",
        effect=refused("Put the values themselves into the configuration."),
        importance=LOW,
    ),
    Key("auto.include.jmx.reporter", BOOLEAN, True, "As in Kafka 3.x.", effect=_NO_METRICS),
    Key(
        "metric.reporters",
        LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "As in Kafka.",
        effect=_NO_METRICS,
    ),
    Key("metrics.num.samples", INT, 2, "As in Kafka.", valid=at_least(1), effect=_NO_METRICS),
    Key(
        "metrics.recording.level",
        STRING,
        "INFO",
        "As in Kafka.",
        valid=OneOf("INFO", "DEBUG", "TRACE"),
        effect=_NO_METRICS,
    ),
    Key(
        "metrics.sample.window.ms",
        LONG,
        30_000,
        "As in Kafka.",
        valid=at_least(0),
        effect=_NO_METRICS,
    ),
    *SECURITY_KEYS,
)


def _idle(limit_ms: int) -> Key:
    return Key(
        "connections.max.idle.ms",
        LONG,
        limit_ms,
        "How long a connection may lie unused before it is closed; negative: for ever.",
    )


def _metrics_push(is_on: bool) -> Key:
    return Key("enable.metrics.push", BOOLEAN, is_on, "As in Kafka.", effect=_NO_METRICS)


def _interceptors() -> Key:
    return Key(
        "interceptor.classes",
        LIST,
        (),
        "Java classes that Kafka's clients call.",
        effect=refused("This client runs no Java classes."),
        importance=LOW,
    )


_TRACING: Final = (
    Key(
        "tidelog.tracing",
        BOOLEAN,
        False,
        "Whether records get spans of OpenTelemetry and the header traceparent; needs "
        "tidelog[otel].",
        importance=LOW,
    ),
    Key(
        "tidelog.tracing.conventions",
        STRING,
        "1.45",
        "The version of OpenTelemetry's semantic conventions that names the attributes of spans.",
        valid=OneOf("1.44", "1.45"),
        importance=LOW,
    ),
)

DEFAULT_API_TIMEOUT: Final = Key(
    "default.api.timeout.ms",
    INT,
    60_000,
    "How long a call may take, retries included, unless it is given a time of its own.",
    valid=at_least(0),
)


def _java_class(name: str, instead: str) -> Key:
    return Key(
        name,
        CLASS,
        None,
        f"A Java class in Kafka; here {instead} is given to the constructor.",
        importance=HIGH,
        effect=harmless(f"Give {instead} to the constructor instead."),
    )


PRODUCER_KEYS: Final = (
    *SHARED_KEYS,
    _idle(_NINE_MINUTES),
    _metrics_push(True),
    _interceptors(),
    *_TRACING,
    _java_class("key.serializer", "key_serializer"),
    _java_class("value.serializer", "value_serializer"),
    Key(
        "acks",
        STRING,
        "all",
        "Who must have a batch before it counts as written.",
        valid=OneOf(*ACKS),
        importance=LOW,
    ),
    Key(
        "batch.size",
        INT,
        16 * 1024,
        "Most bytes of a batch before compression (at least one record).",
        valid=at_least(0),
    ),
    Key(
        "buffer.memory",
        LONG,
        32 * _MIB,
        "Most bytes gathered and not yet acknowledged; beyond it send waits.",
        valid=at_least(0),
        importance=HIGH,
    ),
    Key(
        "compression.type",
        STRING,
        "none",
        "Codec of the batches.",
        valid=OneOf(*COMPRESSION_TYPES),
        importance=HIGH,
    ),
    Key("compression.gzip.level", INT, -1, "Level of gzip.", valid=RangeOr(1, 9, -1)),
    Key("compression.lz4.level", INT, 9, "Level of lz4.", valid=between(1, 17)),
    Key("compression.zstd.level", INT, 3, "Level of zstd.", valid=between(-131_072, 22)),
    Key(
        "delivery.timeout.ms",
        INT,
        120_000,
        "How long a record may take from send to its acknowledgement, retries included.",
        valid=at_least(0),
    ),
    Key(
        "enable.idempotence",
        BOOLEAN,
        True,
        "Write each record once although requests are retried; needs acks=all.",
        importance=LOW,
    ),
    Key(
        "linger.ms",
        LONG,
        5,
        "How long a batch waits for more records.",
        valid=at_least(0),
    ),
    Key(
        "max.block.ms",
        LONG,
        60_000,
        "How long send may wait for metadata or memory.",
        valid=at_least(0),
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
        "max.request.size",
        INT,
        _MIB,
        "Most bytes of one produce request, so of one record too.",
        valid=at_least(0),
    ),
    Key(
        "metadata.max.idle.ms",
        LONG,
        _FIVE_MINUTES,
        "How long the metadata of an unused topic is kept fresh.",
        valid=at_least(5_000),
        importance=LOW,
    ),
    Key(
        "partitioner.class",
        CLASS,
        None,
        "Unset: murmur2 of the key, without a key one partition a batch. Also Kafka's "
        "RoundRobinPartitioner, UniformStickyPartitioner and DefaultPartitioner.",
    ),
    Key(
        "partitioner.adaptive.partitioning.enable",
        BOOLEAN,
        True,
        "Records without a key go to faster brokers more often.",
        importance=LOW,
    ),
    Key(
        "partitioner.availability.timeout.ms",
        LONG,
        0,
        "A broker that takes no batch for so long counts as not available; 0 for never.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "partitioner.ignore.keys",
        BOOLEAN,
        False,
        "Choose a partition as for records without a key.",
    ),
    Key(
        "retries",
        INT,
        INT_MAX,
        "How often a batch may be sent again within delivery.timeout.ms.",
        valid=between(0, INT_MAX),
        importance=HIGH,
    ),
    Key(
        "transaction.timeout.ms",
        INT,
        60_000,
        "How long a transaction may stay open before the coordinator aborts it.",
        importance=LOW,
    ),
    Key(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "KIP-939: transactions that wait for an outside commit.",
        effect=refused("This client has no two-phase commit."),
        importance=LOW,
    ),
    Key(
        "transactional.id",
        STRING,
        None,
        "Names the transactions of this producer across restarts.",
        valid=NonEmpty(),
        importance=LOW,
    ),
)

CONSUMER_KEYS: Final = (
    *SHARED_KEYS,
    _idle(_NINE_MINUTES),
    _metrics_push(True),
    _interceptors(),
    *_TRACING,
    DEFAULT_API_TIMEOUT,
    _java_class("key.deserializer", "key_deserializer"),
    _java_class("value.deserializer", "value_deserializer"),
    Key("allow.auto.create.topics", BOOLEAN, True, "Whether subscribing may create a topic."),
    Key(
        "auto.commit.interval.ms",
        INT,
        5_000,
        "How often positions are committed with enable.auto.commit.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "auto.offset.reset",
        STRING,
        "latest",
        "Where to begin without a committed offset: earliest, latest, none, or "
        "by_duration:<ISO 8601 duration>.",
        valid=OffsetReset(),
    ),
    Key("check.crcs", BOOLEAN, True, "Verify the checksum of every batch.", importance=LOW),
    Key("client.rack", STRING, "", "Where this client stands; close replicas are read from."),
    Key("enable.auto.commit", BOOLEAN, True, "Commit positions in the background."),
    Key(
        "exclude.internal.topics",
        BOOLEAN,
        True,
        "Whether a subscribed pattern leaves out internal topics.",
    ),
    Key(
        "fetch.max.bytes",
        INT,
        50 * _MIB,
        "Most bytes of one fetch over all partitions (at least one batch).",
        valid=at_least(0),
    ),
    Key(
        "fetch.max.wait.ms",
        INT,
        500,
        "How long a broker may wait for fetch.min.bytes.",
        valid=at_least(0),
        importance=LOW,
    ),
    Key(
        "fetch.min.bytes",
        INT,
        1,
        "Fewest bytes a broker waits for.",
        valid=at_least(0),
        importance=HIGH,
    ),
    Key("group.id", STRING, None, "The consumer group.", importance=HIGH),
    Key("group.instance.id", STRING, None, "Name of a static member.", valid=NonEmpty()),
    Key(
        "group.protocol",
        STRING,
        "classic",
        "classic, or consumer (KIP-848).",
        valid=OneOf("CLASSIC", "CONSUMER", ignore_case=True),
        importance=HIGH,
    ),
    Key(
        "group.remote.assignor",
        STRING,
        None,
        "Assignor of the broker, with group.protocol=consumer.",
    ),
    Key(
        "heartbeat.interval.ms",
        INT,
        3_000,
        "How often a member tells the coordinator that it is alive (classic protocol).",
        importance=HIGH,
    ),
    Key(
        "internal.leave.group.on.close",
        BOOLEAN,
        True,
        "Whether close leaves the group; if not, the partitions stay until the session ends.",
        importance=LOW,
        internal=True,
    ),
    Key(
        "internal.throw.on.fetch.stable.offset.unsupported",
        BOOLEAN,
        False,
        "Whether a broker that cannot hold back unstable offsets is an error.",
        importance=LOW,
        internal=True,
    ),
    Key(
        "isolation.level",
        STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are seen.",
        valid=OneOf("read_committed", "read_uncommitted"),
    ),
    Key(
        "max.partition.fetch.bytes",
        INT,
        _MIB,
        "Most bytes of one fetch from one partition (at least one batch).",
        valid=at_least(0),
        importance=HIGH,
    ),
    Key(
        "max.poll.interval.ms",
        INT,
        300_000,
        "How long a member may take between polls.",
        valid=at_least(1),
    ),
    Key("max.poll.records", INT, 500, "Most records of one poll.", valid=at_least(1)),
    Key(
        "partition.assignment.strategy",
        LIST,
        (
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ),
        "Assignors, best first (classic protocol): Kafka's class names, or range, roundrobin, "
        "sticky, cooperative-sticky.",
    ),
    Key(
        "session.timeout.ms",
        INT,
        45_000,
        "Without a heartbeat for so long, a member is out (classic protocol).",
        importance=HIGH,
    ),
    Key(
        "share.acknowledgement.mode",
        STRING,
        "implicit",
        "As in Kafka.",
        effect=harmless("This client has no share groups."),
    ),
    Key(
        "share.acquire.mode",
        STRING,
        "batch_optimized",
        "As in Kafka.",
        effect=harmless("This client has no share groups."),
    ),
)

ADMIN_KEYS: Final = (
    *SHARED_KEYS,
    _idle(_FIVE_MINUTES),
    _metrics_push(False),
    DEFAULT_API_TIMEOUT,
    Key(
        "bootstrap.controllers",
        LIST,
        (),
        "host:port of KRaft controllers to ask instead of brokers.",
        importance=HIGH,
        effect=refused("This client asks brokers: set bootstrap.servers."),
    ),
    Key(
        "retries",
        INT,
        INT_MAX,
        "How often a call may be sent again within its time.",
        valid=between(0, INT_MAX),
        importance=LOW,
    ),
)
