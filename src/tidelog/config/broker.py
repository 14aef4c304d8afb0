"""The broker's configuration: all keys of Kafka 3.9's server.properties, parsed and checked.

The rows are in `tidelog.config.keys`. Defaults are Kafka's, but for these: `listeners` is on the
loopback interface, `num.network.threads` is 1, and the sizes of socket buffers are left to the
system.

Every row says what comes of its key (`Effect`). A value that would have to protect data, keep it or
place it and that nothing here honours is refused: the broker does not start. A key that is harmless
without effect is named in `warnings`. Keys that no row has are kept and nothing else
(`server_properties.py` tells the operator).

`listener.name.<name>.<key>` sets a key for one listener, if it is one of `LISTENER_KEYS`, of
`LISTENER_TLS_KEYS` or, for a listener with SASL, of `SASL_LISTENER_KEYS`.
`listener.name.<name>.<mechanism>.<key>` sets one of `SASL_MECHANISM_KEYS` for one mechanism. Keys
of TLS and SASL that no row has are refused; of others there is a warning, and of keys that no
enabled mechanism reads.

No KRaft quorum runs here. A configuration of one node that is broker and controller at once means
the same as the embedded store, so it is accepted. Any other one would start a cluster of its own
beside the one its operator means, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidelog.config.definition import (
    BLANKS,
    ConfigError,
    ConfigTable,
    InvalidValue,
    Key,
    UnknownKey,
    Value,
    is_digits,
)
from tidelog.config.keys import (
    coordination,
    coordinator,
    log,
    measurement,
    network,
    replication,
    security,
    server,
    tiered,
)
from tidelog.config.listeners import (
    Endpoint,
    parse_endpoint,
    parse_endpoints,
    parse_protocol_map,
    require_distinct_ports,
    split_list,
)
from tidelog.config.oauth import OAUTH_LISTENER_KEYS, OAUTHBEARER, UnsecuredTokens
from tidelog.config.sasl import (
    KNOWN_MECHANISMS,
    SASL_ACCESS_KEYS,
    SASL_LISTENER_KEYS,
    SASL_MECHANISM_KEYS,
    SERVED_MECHANISMS,
    AnyLogin,
    SaslListener,
    inter_broker_login,
    sasl_listener,
)

_MIB: Final = 1 << 20

ROLES: Final = "process.roles"
VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
AUTHORIZER: Final = "authorizer.class.name"
AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
LOOPBACK: Final = frozenset(("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"))
ADVICE: Final = (
    "no KRaft quorum runs here; remove the KRaft keys, and set zookeeper.connect for a cluster of "
    "several brokers"
)

# Subject and rows, in the order of docs/config.md.
SUBJECTS: Final = (
    ("Server", server),
    ("Network", network),
    ("Log", log),
    ("Replication", replication),
    ("Coordinators", coordinator),
    ("Coordination", coordination),
    ("Security", security),
    ("Measurement", measurement),
    ("Tiered storage", tiered),
)
BROKER_TABLE: Final = ConfigTable(
    (*(key for _, module in SUBJECTS for key in module.KEYS), *replication.DYNAMIC_ONLY_KEYS)
)

LISTENER_PREFIX: Final = "listener.name."
# What a single listener may have of its own.
LISTENER_KEYS: Final = ("max.connections", "max.connection.creation.rate")
LISTENER_TLS_KEYS: Final = tuple(key.name for key in security.KEYS if key.name.startswith("ssl."))
# Whoever sets one of these means to have TLS.
TLS_PROTECTING_KEYS: Final = (
    "ssl.client.auth",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
)
SECURITY_PARTS: Final = (".principal.builder.class",)
SASL_PART: Final = ".sasl."
TLS_PART: Final = ".ssl."
ID_KEYS: Final = ("broker.id", "node.id")
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


class BrokerConfig:
    """Typed values of all broker keys. Never changes: a dynamic change makes a new one.

    `originals` are the texts that were set, `warnings` what the operator should know about them.
    """

    __slots__ = (
        "_values",
        "advertised_listeners",
        "auto_create_topics_enable",
        "delete_topic_enable",
        "fetch_max_bytes",
        "inter_broker_listener_name",
        "inter_broker_login",
        "listeners",
        "log_dirs",
        "max_connections_per_ip_overrides",
        "metrics_listener",
        "num_partitions",
        "originals",
        "sasl_listeners",
        "super_users",
        "warnings",
    )

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        for problem in self._build(properties or {}):
            raise problem

    @classmethod
    def problems(cls, properties: Mapping[str, str]) -> list[ConfigError]:
        """Everything that is wrong with these settings; the constructor raises the first."""
        found = {str(problem): problem for problem in cls.__new__(cls)._build(properties)}
        return list(found.values())

    def _build(self, properties: Mapping[str, str]) -> Iterator[ConfigError]:
        """Yields what is wrong. A part that stands on a wrong one is left out."""
        self.originals: dict[str, str] = with_both_ids(properties)
        self._values: dict[str, Value] = BROKER_TABLE.defaults()
        for name, text in self.originals.items():
            key = find_key(name)
            if key is None:
                continue
            try:
                self._values[name] = key.parse(text)
            except ConfigError as problem:
                if name in properties:
                    yield problem
        for step in (self._refuse_what_is_not_served, self._parse_node, self._parse_log_dirs):
            yield from _complaint_of(step)
        listeners_are_wrong = list(_complaint_of(self._parse_listeners))
        yield from listeners_are_wrong
        if not listeners_are_wrong:
            yield from _complaint_of(self._parse_sasl)
        for step in (
            self._parse_metrics_listener,
            self._parse_ip_overrides,
            self._parse_super_users,
        ):
            yield from _complaint_of(step)
        self.auto_create_topics_enable: bool = self.get_bool("auto.create.topics.enable")
        self.delete_topic_enable: bool = self.get_bool("delete.topic.enable")
        self.num_partitions: int = self.get_int("num.partitions")
        self.fetch_max_bytes: int = self.get_int("fetch.max.bytes")
        yield from self._check()
        if not listeners_are_wrong:
            self.warnings: tuple[str, ...] = tuple(self._find_warnings())

    def _parse_node(self) -> None:
        self._settle_broker_id()
        node_id = self.broker_id if self.broker_id_is_set else None
        require_known_roles(self[ROLES], node_id, self["zookeeper.connect"])
        require_own_vote(self[VOTERS], node_id)

    def with_overrides(self, overrides: Mapping[str, str]) -> BrokerConfig:
        return BrokerConfig({**self.originals, **with_both_ids(overrides)})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def values(self) -> Mapping[str, Value]:
        return self._values

    def get_int(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def get_bool(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def get_str(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def of_listeners(self, name: str) -> dict[str, int]:
        """The values that single listeners have of one of LISTENER_KEYS, by listener."""
        assert name in LISTENER_KEYS, name
        return {
            listener_of(full): self.get_int(full)
            for full, key in self._set_keys()
            if key.name == name != full
        }

    def open_to_everybody(self) -> list[Endpoint]:
        """The listeners beyond this machine whose clients need not say who they are."""
        return [
            endpoint
            for endpoint in self.listeners
            if not endpoint.is_loopback
            and (not endpoint.needs_sasl or self.takes_unsecured_tokens(endpoint))
            and not (
                endpoint.is_encrypted and self.tls_values(endpoint)["ssl.client.auth"] == "required"
            )
        ]

    def takes_unsecured_tokens(self, endpoint: Endpoint) -> bool:
        """Whether anybody may say there to be anybody."""
        listener = self.sasl_listeners.get(endpoint.listener_name)
        return listener is not None and isinstance(listener.token_rules, UnsecuredTokens)

    def tls_values(self, endpoint: Endpoint) -> dict[str, Value]:
        """The ssl.* keys of a listener: its own, else those of all.

        As in Kafka a listener with SASL asks for certificates only if its own key says so.
        """
        values = {name: self._values[name] for name in LISTENER_TLS_KEYS}
        if endpoint.needs_sasl:
            values["ssl.client.auth"] = "none"
        for name, key in self._set_keys():
            is_own = name != key.name and listener_of(name) == endpoint.listener_name
            if is_own and key.name in values:
                values[key.name] = self._values[name]
        return values

    @property
    def broker_id(self) -> int:
        return self.get_int("broker.id")

    @property
    def broker_id_is_set(self) -> bool:
        """False if the number may still be taken from meta.properties."""
        return BROKER_TABLE["broker.id"].parse(self.originals.get("broker.id", "-1")) != -1

    @property
    def delegation_token_secret_key(self) -> str | None:
        """None: there are no delegation tokens."""
        names = ("delegation.token.secret.key", "delegation.token.master.key")
        for value in (self._values[name] for name in names):
            if value:
                assert isinstance(value, str)
                return value
        return None

    @property
    def rack(self) -> str | None:
        value = self._values["broker.rack"]
        assert value is None or isinstance(value, str)
        return value

    @property
    def log_retention_ms(self) -> int:
        """log.retention.ms, else .minutes, else .hours; -1 if negative."""
        ms = self._first_set(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        )
        return max(ms, -1)

    @property
    def log_roll_ms(self) -> int:
        return self._first_set(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS))

    @property
    def log_roll_jitter_ms(self) -> int:
        return self._first_set(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS))

    @property
    def log_flush_interval_ms(self) -> int:
        return self._first_set(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))

    def _first_set(self, *names: tuple[str, int]) -> int:
        for name, factor in names:
            value = self._values[name]
            if value is not None:
                assert isinstance(value, int), name
                return value * factor
        raise AssertionError(names)

    def _refuse_what_is_not_served(self) -> None:
        """Names all such keys at once."""
        complaints = [
            f"{name}: {key.effect.reason}"
            for name, key in self._set_keys()
            if (
                name == key.name or key.name in LISTENER_TLS_KEYS or is_sasl_key_of_a_listener(name)
            )
            and key.refuses(self._values[name])
        ]
        complaints += [
            f"{name}: there is no such setting of SASL; remove the key{hint_at(name)}"
            for name in sorted(filter(is_sasl_key_of_a_listener, self.originals))
            if find_key(name) is None
        ]
        complaints += [
            f"{name}: no class is loaded for a listener; remove the key"
            for name in sorted(filter(secures_a_listener, self.originals))
        ]
        if complaints:
            raise ConfigError("; ".join(complaints))

    def _set_keys(self) -> Iterator[tuple[str, Key]]:
        """The known keys that were set, in the order of their names."""
        for name in sorted(self.originals):
            key = find_key(name)
            if key is not None:
                yield name, key

    def _settle_broker_id(self) -> None:
        """broker.id and node.id are one number; not set, it is 0 until meta.properties tells."""
        broker_id, node_id = self.get_int("broker.id"), self.get_int("node.id")
        if broker_id != node_id:
            raise ConfigError(f"node.id ({node_id}) and broker.id ({broker_id}) must be the same")
        if broker_id < -1:
            raise InvalidValue("broker.id", broker_id, "Value must be at least -1")
        self._values["broker.id"] = self._values["node.id"] = max(broker_id, 0)

    def _parse_log_dirs(self) -> None:
        text = self._values["log.dirs"] or self._values["log.dir"]
        assert isinstance(text, str)
        directories = split_list(text)
        if not directories:
            raise ConfigError("at least one log directory must be set in log.dirs or log.dir")
        if len(set(directories)) < len(directories):
            raise InvalidValue("log.dirs", text, "a directory is named twice")
        self.log_dirs: tuple[Path, ...] = tuple(map(Path, directories))

    def _parse_listeners(self) -> None:
        protocols = parse_protocol_map(
            "listener.security.protocol.map", self.get_str("listener.security.protocol.map")
        )
        controllers = {
            name.upper() for name in split_list(self._values_text("controller.listener.names"))
        }
        if "listener.security.protocol.map" not in self.originals:
            protocols.update((name, "PLAINTEXT") for name in controllers - protocols.keys())
        listeners = parse_endpoints("listeners", self.get_str("listeners"), protocols)
        require_distinct_ports("listeners", listeners)
        self.listeners = tuple(item for item in listeners if item.listener_name not in controllers)
        if not self.listeners:
            raise InvalidValue("listeners", self["listeners"], "at least one listener is needed")
        self._refuse_tls_keys_of_plain_listeners()
        self.advertised_listeners: tuple[Endpoint, ...] = self._parse_advertised(
            protocols, controllers
        )
        self._require_own_controller(
            [item for item in listeners if item.listener_name in controllers]
        )
        self.inter_broker_listener_name: str = self._find_inter_broker_listener()

    def _refuse_tls_keys_of_plain_listeners(self) -> None:
        """Whoever writes one counts on it."""
        encrypted = {each.listener_name: each.is_encrypted for each in self.listeners}
        for name in TLS_PROTECTING_KEYS:
            if self._values[name] not in (BROKER_TABLE[name].default, "") and not any(
                encrypted.values()
            ):
                raise ConfigError(
                    f"{name}: no listener speaks TLS, so everything would travel in the clear; "
                    "remove the key, or give a listener the protocol SSL"
                )
        for name in sorted(self.originals):
            if not is_tls_key_of_a_listener(name):
                continue
            if find_key(name) is None:
                raise ConfigError(
                    f"{name}: there is no such key of TLS; correct or remove the key{hint_at(name)}"
                )
            if not encrypted.get(listener_of(name), True):
                raise ConfigError(
                    f"{name}: the listener does not speak TLS, so it would have no effect; remove "
                    "the key, or give the listener the protocol SSL"
                )

    def _parse_sasl(self) -> None:
        self.sasl_listeners: dict[str, SaslListener] = {
            endpoint.listener_name: sasl_listener(self._values, endpoint.listener_name)
            for endpoint in self.listeners
            if endpoint.needs_sasl
        }
        self._refuse_sasl_for_nobody()
        name = self.inter_broker_listener_name
        self.inter_broker_login: AnyLogin | None = None
        if name in self.sasl_listeners and self["zookeeper.connect"]:
            self.inter_broker_login = inter_broker_login(self._values, name)

    def _refuse_sasl_for_nobody(self) -> None:
        """Its operator may believe that clients have to authenticate."""
        complaints = []
        for name, key in self._set_keys():
            if key.name not in SASL_ACCESS_KEYS or self._values[name] in (key.default, ""):
                continue
            if name == key.name and not self.sasl_listeners:
                complaints.append(
                    f"{name}: no listener has SASL, so nobody would have to authenticate; remove "
                    "the key, or give a listener the protocol SASL_SSL"
                )
            elif name != key.name and not self._is_of_sasl_listener(name):
                complaints.append(
                    f"{name}: there is no listener {listener_of(name)} with SASL (the key is in "
                    "lower case); remove the key, or give that listener the protocol SASL_SSL"
                )
        if complaints:
            raise ConfigError("; ".join(complaints))

    def _is_of_sasl_listener(self, name: str) -> bool:
        return name == name.lower() and listener_of(name) in self.sasl_listeners

    def _is_read_by_a_mechanism(self, name: str) -> bool:
        """True as well for a key of all mechanisms of a SASL listener."""
        mechanism, key = mechanism_and_key(name)
        if mechanism is None:
            return True
        is_enabled = mechanism in self.sasl_listeners[listener_of(name)].mechanisms
        return is_enabled and (mechanism == OAUTHBEARER or key not in OAUTH_LISTENER_KEYS)

    def _require_own_controller(self, controllers: list[Endpoint]) -> None:
        named = (*controllers, *self.listeners, *self.advertised_listeners)
        require_own_controller(self[BOOTSTRAP_SERVERS], controllers, {e.host for e in named})

    def _parse_advertised(
        self, protocols: Mapping[str, str], controllers: set[str]
    ) -> tuple[Endpoint, ...]:
        text = self._values["advertised.listeners"]
        advertised = self.listeners
        if isinstance(text, str):
            parsed = parse_endpoints("advertised.listeners", text, protocols)
            advertised = tuple(item for item in parsed if item.listener_name not in controllers)
        unheard = {item.listener_name for item in advertised} - {
            item.listener_name for item in self.listeners
        }
        if unheard:
            raise InvalidValue(
                "advertised.listeners", text, f"listeners has no {', '.join(sorted(unheard))}"
            )
        if any(endpoint.host == "0.0.0.0" for endpoint in advertised):
            raise ConfigError(
                "0.0.0.0 cannot be advertised to clients: set advertised.listeners to an address "
                "they can reach"
            )
        return advertised

    def _find_inter_broker_listener(self) -> str:
        key = "inter.broker.listener.name"
        name = self._values[key]
        if name is not None and "security.inter.broker.protocol" in self.originals:
            raise ConfigError(f"only one of {key} and security.inter.broker.protocol may be set")
        if name is None:
            key = "security.inter.broker.protocol"
            name = self._values[key]
        assert isinstance(name, str)
        if name.upper() not in {endpoint.listener_name for endpoint in self.advertised_listeners}:
            advertised = ",".join(map(str, self.advertised_listeners))
            raise InvalidValue(key, name, f"no such listener among those advertised, {advertised}")
        return name.upper()

    def _values_text(self, name: str) -> str:
        value = self._values[name]
        return value if isinstance(value, str) else ""

    def _parse_ip_overrides(self) -> None:
        key = "max.connections.per.ip.overrides"
        overrides: dict[str, int] = {}
        for item in split_list(self.get_str(key)):
            host, colon, count = (part.strip(BLANKS) for part in item.rpartition(":"))
            if not colon or not host or not is_digits(count):
                raise InvalidValue(key, item, "an override has the form host:count")
            overrides[host] = int(count)
        self.max_connections_per_ip_overrides: dict[str, int] = overrides

    @property
    def has_authorizer(self) -> bool:
        return bool(self[AUTHORIZER])

    def _parse_super_users(self) -> None:
        name = self.get_str(AUTHORIZER)
        if name and name not in AUTHORIZERS:
            raise ConfigError(
                f"{AUTHORIZER}: {name} cannot be loaded. Set {AUTHORIZERS[0]}, which stands for "
                "the built-in authorizer with Kafka's ACLs, or remove the key"
            )
        users = [user.strip(BLANKS) for user in self.get_str("super.users").split(";")]
        for user in filter(None, users):
            if ":" not in user:
                raise InvalidValue("super.users", user, "a principal has the form User:name")
        if any(users) and not name:
            raise ConfigError(
                f"super.users: without {AUTHORIZER} every client is a super user; set it to "
                f"{AUTHORIZERS[0]}, or remove the key"
            )
        self.super_users: frozenset[str] = frozenset(filter(None, users))

    def _parse_metrics_listener(self) -> None:
        key = "tidelog.metrics.listener"
        text = self.get_str(key)
        self.metrics_listener: Endpoint | None = (
            parse_endpoint(key, text, {"HTTP": "PLAINTEXT"}) if text else None
        )

    def _check(self) -> Iterator[ConfigError]:
        if self.log_roll_ms < 1:
            yield InvalidValue("log.roll.ms", self.log_roll_ms, "Value must be at least 1")
        if self.log_roll_jitter_ms < 0:
            yield InvalidValue(
                "log.roll.jitter.ms", self.log_roll_jitter_ms, "Value must be at least 0"
            )
        if self.log_retention_ms == 0:
            yield InvalidValue(
                "log.retention.ms", 0, "Value must be at least 1, or -1 for no bound"
            )
        if self["log.cleaner.min.compaction.lag.ms"] > self["log.cleaner.max.compaction.lag.ms"]:
            yield ConfigError(
                "log.cleaner.min.compaction.lag.ms must not be above "
                "log.cleaner.max.compaction.lag.ms"
            )
        if self["log.cleaner.dedupe.buffer.size"] <= _MIB * self["log.cleaner.threads"]:
            yield ConfigError(
                "log.cleaner.dedupe.buffer.size must be at least 1 MiB for each of "
                "log.cleaner.threads"
            )
        if self["replica.fetch.wait.max.ms"] > self["replica.socket.timeout.ms"]:
            yield ConfigError(
                "replica.fetch.wait.max.ms must not be above replica.socket.timeout.ms"
            )
        if self["replica.fetch.wait.max.ms"] > self["replica.lag.time.max.ms"]:
            yield ConfigError("replica.fetch.wait.max.ms must not be above replica.lag.time.max.ms")
        if 0 < self["queued.max.request.bytes"] < self["socket.request.max.bytes"]:
            yield ConfigError("queued.max.request.bytes must not be below socket.request.max.bytes")
        if self["max.connections.per.ip"] == 0 and not self.max_connections_per_ip_overrides:
            yield ConfigError(
                "max.connections.per.ip can be 0 only if max.connections.per.ip.overrides is set, "
                "because nobody could connect"
            )
        yield from self._check_consumer_groups()

    def _check_consumer_groups(self) -> Iterator[ConfigError]:
        for what in ("heartbeat.interval.ms", "session.timeout.ms"):
            low, high = f"group.consumer.min.{what}", f"group.consumer.max.{what}"
            default = f"group.consumer.{what}"
            if self[low] > self[high]:
                yield ConfigError(f"{low} must not be above {high}")
            if not self[low] <= self[default] <= self[high]:
                yield ConfigError(f"{default} must be between {low} and {high}")
        if (
            self["group.consumer.heartbeat.interval.ms"]
            >= self["group.consumer.session.timeout.ms"]
        ):
            yield ConfigError(
                "group.consumer.heartbeat.interval.ms must be below "
                "group.consumer.session.timeout.ms"
            )
        if not self["group.consumer.assignors"]:
            yield ConfigError("group.consumer.assignors must name at least one assignor")

    def without_effect(self) -> list[str]:
        """The known keys that were set and that nothing reads."""
        return [name for name, key in self._set_keys() if not self._has_effect(name, key)]

    def _find_warnings(self) -> Iterator[str]:
        if unread := self.without_effect():
            yield f"accepted, but without effect here: {', '.join(unread)}"
        for endpoint in filter(self.takes_unsecured_tokens, self.listeners):
            yield (
                f"INSECURE: the listener {endpoint.listener_name} takes tokens without a signature "
                "(unsecuredValidator), so every client can say to be any user; use it for "
                "development only"
            )
        if self.delegation_token_secret_key is not None and not any(
            mechanism.startswith("SCRAM-")
            for listener in self.sasl_listeners.values()
            for mechanism in listener.mechanisms
        ):
            yield (
                "delegation.token.secret.key: no listener has a mechanism of SCRAM, so nobody can "
                "log in with a delegation token"
            )
        if "allow.everyone.if.no.acl.found" in self.originals and not self.has_authorizer:
            yield f"allow.everyone.if.no.acl.found has no effect, {AUTHORIZER} is not set"

    def _has_effect(self, name: str, key: Key) -> bool:
        if key.is_harmless or (name in SASL_LISTENER_KEYS and not self.sasl_listeners):
            return False
        if key.name in LISTENER_TLS_KEYS and not any(e.is_encrypted for e in self.listeners):
            return False
        if name == key.name:
            return True
        listeners = {endpoint.listener_name for endpoint in self.listeners}
        if key.name in SASL_LISTENER_KEYS:
            return self._is_of_sasl_listener(name) and self._is_read_by_a_mechanism(name)
        is_listeners_own = key.name in LISTENER_KEYS or key.name in LISTENER_TLS_KEYS
        return is_listeners_own and listener_of(name) in listeners


def _complaint_of(step: Callable[[], None]) -> Iterator[ConfigError]:
    try:
        step()
    except ConfigError as problem:
        yield problem


def with_both_ids(properties: Mapping[str, str]) -> dict[str, str]:
    """broker.id and node.id are synonyms: who sets one has set the other, as in Kafka."""
    ids = {properties[name] for name in ID_KEYS if name in properties}
    if len(ids) == 1:
        return {**properties, **dict.fromkeys(ID_KEYS, ids.pop())}
    return dict(properties)


def find_key(name: str) -> Key | None:
    """The row of a broker key; a listener's own key has the row of the key it overrides."""
    return BROKER_TABLE.get(name) or BROKER_TABLE.get(mechanism_and_key(name)[1])


def mechanism_and_key(name: str) -> tuple[str | None, str]:
    """Of a listener's own key: the mechanism it is for, if it is for one, and what it overrides.

    What stands before a key and is no mechanism that has such a key stays a part of it.
    """
    base = part_of_listener(name)
    mechanism, _, key = base.partition(".")
    if mechanism.upper() in KNOWN_MECHANISMS and key in SASL_MECHANISM_KEYS:
        return mechanism.upper(), key
    return None, base


def part_of_listener(name: str) -> str:
    """What a key with LISTENER_PREFIX says of its listener; empty if it has no such prefix."""
    if not name.startswith(LISTENER_PREFIX):
        return ""
    return name.removeprefix(LISTENER_PREFIX).partition(".")[2]


def nearest_key(name: str) -> str | None:
    """The known key that looks most like the given one; for the same listener, if it has one."""
    base = part_of_listener(name)
    if not base:
        return BROKER_TABLE.nearest(name)
    from difflib import get_close_matches

    known = (*LISTENER_KEYS, *LISTENER_TLS_KEYS, *SASL_LISTENER_KEYS)
    of_mechanisms = (
        f"{mechanism.lower()}.{key}"
        for mechanism in SERVED_MECHANISMS
        for key in SASL_MECHANISM_KEYS
    )
    matches = get_close_matches(base.lower(), (*known, *of_mechanisms), n=1)
    return f"{name.removesuffix(base)}{matches[0]}" if matches else None


def listener_of(name: str) -> str:
    """The listener, in upper case, that a key with LISTENER_PREFIX is for."""
    return name.removeprefix(LISTENER_PREFIX).partition(".")[0].upper()


def secures_a_listener(name: str) -> bool:
    """With TLS, or a class."""
    rest = name.removeprefix(LISTENER_PREFIX)
    return rest != name and any(part in rest for part in SECURITY_PARTS)


def is_tls_key_of_a_listener(name: str) -> bool:
    return TLS_PART in f".{part_of_listener(name)}"


def is_sasl_key_of_a_listener(name: str) -> bool:
    return SASL_PART in f".{part_of_listener(name)}"


def hint_at(name: str) -> str:
    nearest = nearest_key(name)
    return f" (did you mean {nearest}?)" if nearest else ""


def must_find_key(name: str) -> Key:
    key = find_key(name)
    if key is None:
        raise UnknownKey(name, nearest_key(name))
    return key


def require_known_roles(roles: Sequence[str], node_id: int | None, zookeeper: str | None) -> None:
    """`node_id` is None where it is not set."""
    if not roles:
        return
    if zookeeper:
        raise ConfigError(
            f"{ROLES} and zookeeper.connect are both set, but metadata is in one place only; "
            f"remove {ROLES} to use ZooKeeper"
        )
    if set(roles) != {"broker", "controller"}:
        raise ConfigError(f"{ROLES}={','.join(roles)}: {ADVICE}")
    if node_id is None:
        raise ConfigError(f"{ROLES} is set, so node.id must be set as well")


def require_own_vote(voters: Iterable[str], node_id: int | None) -> None:
    for voter in voters:
        number, at, address = voter.partition("@")
        host, colon, port = address.rpartition(":")
        if not (at and host and colon and is_digits(number) and is_digits(port)):
            raise InvalidValue(VOTERS, voter, "a voter has the form id@host:port")
        if int(number) != node_id:
            raise ConfigError(f"{VOTERS} names another node, {voter}: {ADVICE}")


def require_own_controller(
    servers: Iterable[str], controllers: Iterable[Endpoint], own_hosts: Iterable[str]
) -> None:
    """Each server must be a controller listener of this node, under one of its names."""
    ports = {endpoint.port for endpoint in controllers}
    hosts = LOOPBACK.union(own_hosts)
    for named in servers:
        host, colon, port = named.rpartition(":")
        if not (host and colon and is_digits(port)):
            raise InvalidValue(BOOTSTRAP_SERVERS, named, "a server has the form host:port")
        if host.removeprefix("[").removesuffix("]") not in hosts or int(port) not in ports:
            raise ConfigError(f"{BOOTSTRAP_SERVERS} names another node, {named}: {ADVICE}")
