from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.config.listeners import Endpoint, advertise
from tidelog.config.server_properties import load_broker_config

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("listeners", "keys", "names"),
    [
        ("PLAINTEXT://127.0.0.1:9092", {}, []),
        ("PLAINTEXT://localhost:9092,SSL://[::1]:9093", {}, []),
        ("PLAINTEXT://:9092", {}, ["PLAINTEXT"]),
        ("PLAINTEXT://127.0.0.1.example.com:9092", {}, ["PLAINTEXT"]),
        ("PLAINTEXT://127.0.0.1:9092,SSL://10.0.0.1:9093", {}, ["SSL"]),
        (
            "PLAINTEXT://127.0.0.1:9092,SSL://10.0.0.1:9093",
            {"ssl.client.auth": "requested"},
            ["SSL"],
        ),
        (
            "PLAINTEXT://127.0.0.1:9092,SSL://10.0.0.1:9093",
            {"ssl.client.auth": "required"},
            [],
        ),
        (
            "PLAINTEXT://127.0.0.1:9092,SSL://10.0.0.1:9093",
            {"ssl.client.auth": "required", "listener.name.ssl.ssl.client.auth": "none"},
            ["SSL"],
        ),
    ],
)
def test_listeners_that_are_open_to_everybody_are_known(
    listeners: str, keys: dict[str, str], names: list[str]
) -> None:
    config = BrokerConfig({"listeners": listeners, **keys})
    assert [each.listener_name for each in config.open_to_everybody()] == names


def test_a_listener_has_the_tls_of_all_unless_it_has_its_own() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://:1,IN://:2,OUT://:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SSL,OUT:SSL",
            "ssl.keystore.location": "/all",
            "ssl.client.auth": "required",
            "listener.name.out.ssl.keystore.location": "/out",
            "listener.name.out.ssl.client.auth": "none",
        }
    )
    _, inner, outer = map(config.tls_values, config.listeners)
    assert (inner["ssl.keystore.location"], inner["ssl.client.auth"]) == ("/all", "required")
    assert (outer["ssl.keystore.location"], outer["ssl.client.auth"]) == ("/out", "none")
    sasl = config.listeners[1]._replace(security_protocol="SASL_SSL")
    assert config.tls_values(sasl)["ssl.client.auth"] == "none"


def test_defaults_are_kafkas_but_for_loopback_and_one_network_thread() -> None:
    config = BrokerConfig()
    assert config.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == config.listeners
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == (Path("/tmp/kafka-logs"),)
    assert config["num.network.threads"] == 1
    assert config["num.partitions"] == config.num_partitions == 1
    assert config.auto_create_topics_enable
    assert config.delete_topic_enable
    assert config.fetch_max_bytes == 55 << 20
    assert config["message.max.bytes"] == 1_048_588
    assert config["log.segment.bytes"] == 1 << 30
    assert config["log.retention.bytes"] == -1
    assert config["log.retention.check.interval.ms"] == 300_000
    assert config["socket.request.max.bytes"] == 100 << 20
    assert config["queued.max.requests"] == 500
    assert config["connections.max.idle.ms"] == 600_000
    assert config["max.connections"] == 50_000
    assert config["max.incremental.fetch.session.cache.slots"] == 1000
    assert config["producer.id.expiration.ms"] == 86_400_000
    assert config["offsets.topic.num.partitions"] == 50
    assert config["transaction.max.timeout.ms"] == 900_000
    assert config["group.initial.rebalance.delay.ms"] == 3000
    assert config.rack is None
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "1"}, HOUR_MS),
        ({"log.retention.hours": "1", "log.retention.minutes": "30"}, HOUR_MS // 2),
        ({"log.retention.minutes": "30", "log.retention.ms": "5"}, 5),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-20"}, -1),
    ],
)
def test_retention_prefers_the_finer_unit(properties: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig(properties).log_retention_ms == retention_ms


def test_roll_time_and_jitter_prefer_milliseconds_over_hours() -> None:
    hours = {"log.roll.hours": "2", "log.roll.jitter.hours": "1"}
    assert BrokerConfig(hours).log_roll_ms == 2 * HOUR_MS
    assert BrokerConfig(hours).log_roll_jitter_ms == HOUR_MS
    config = BrokerConfig({**hours, "log.roll.ms": "7", "log.roll.jitter.ms": "3"})
    assert (config.log_roll_ms, config.log_roll_jitter_ms) == (7, 3)


def test_flush_interval_falls_back_to_the_scheduler_interval() -> None:
    scheduler = {"log.flush.scheduler.interval.ms": "50"}
    assert BrokerConfig(scheduler).log_flush_interval_ms == 50
    both = {**scheduler, "log.flush.interval.ms": "9"}
    assert BrokerConfig(both).log_flush_interval_ms == 9


def test_broker_id_and_node_id_are_one_number() -> None:
    assert BrokerConfig({"node.id": "7"}).broker_id == 7
    assert BrokerConfig({"broker.id": " 7 "})["node.id"] == 7
    assert BrokerConfig({"broker.id": "7", "node.id": "7"}).broker_id == 7
    with pytest.raises(ConfigError, match="must be the same"):
        BrokerConfig({"broker.id": "7", "node.id": "8"})


def test_a_broker_id_that_is_not_set_is_0_and_says_so() -> None:
    config = BrokerConfig()
    assert (config.broker_id, config.broker_id_is_set) == (0, False)
    assert not BrokerConfig({"broker.id": "-1"}).broker_id_is_set
    assert BrokerConfig({"node.id": "0"}).broker_id_is_set


@pytest.mark.parametrize("key", ["broker.id", "node.id"])
def test_a_broker_id_of_minus_1_gives_way_to_the_one_that_is_found(key: str) -> None:
    """meta.properties, or ZooKeeper, has the number of a file that says broker.id=-1."""
    config = BrokerConfig({key: "-1"}).with_overrides({"broker.id": "1001"})
    assert (config.broker_id, config["node.id"]) == (1001, 1001)


def test_log_dirs_go_before_log_dir() -> None:
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == (Path("/a"),)
    both = {"log.dir": "/a", "log.dirs": " /b , /c,"}
    assert BrokerConfig(both).log_dirs == (Path("/b"), Path("/c"))


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nbroker.id=1\n")
    config = load_broker_config(path, [("num.partitions", "8")])
    assert (config.num_partitions, config.broker_id) == (8, 1)


def test_keys_without_effect_are_named_in_one_warning() -> None:
    config = BrokerConfig(
        {"num.io.threads": "8", "group.share.max.size": "50", "num.partitions": "2"}
    )
    assert config.warnings == (
        "accepted, but without effect here: group.share.max.size, num.io.threads",
    )


def test_a_listeners_own_key_has_the_type_of_the_key_it_overrides() -> None:
    config = BrokerConfig(
        {
            "listener.name.plaintext.max.connections": "5",
            "listener.name.plaintext.max.connection.creation.rate": "7",
            "listener.name.internal.num.network.threads": "2",
        }
    )
    assert config["listener.name.plaintext.max.connections"] == 5
    assert config["listener.name.internal.num.network.threads"] == 2
    assert config.of_listeners("max.connections") == {"PLAINTEXT": 5}
    assert config.of_listeners("max.connection.creation.rate") == {"PLAINTEXT": 7}
    assert config.warnings == (
        "accepted, but without effect here: listener.name.internal.num.network.threads",
    )
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        BrokerConfig({"listener.name.plaintext.max.connections": "many"})


def test_nothing_stands_between_a_listener_and_its_key() -> None:
    name = "listener.name.plaintext.foo.max.connections"
    config = load_broker_config(None, [(name, "1")])
    assert config.warnings == (
        f"--override: unknown configuration key {name}; did you mean "
        "listener.name.plaintext.max.connections?",
    )
    assert config.of_listeners("max.connections") == {}


def test_a_key_of_tls_that_is_not_quite_a_listeners_own_ends_the_start() -> None:
    name = "listener.name.ssl.foo.ssl.client.auth"
    with pytest.raises(ConfigError, match=f"{name}: there is no such key of TLS") as raised:
        BrokerConfig({"listeners": "SSL://:1", name: "required"})
    assert "did you mean listener.name.ssl.ssl.client.auth?" in str(raised.value)


def test_several_listeners_and_their_protocols() -> None:
    config = BrokerConfig(
        {
            "listeners": "internal://:9092, EXTERNAL://[::1]:9093",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,external:PLAINTEXT",
            "advertised.listeners": "EXTERNAL://kafka.example:29093,INTERNAL://10.0.0.1:9092",
            "inter.broker.listener.name": "internal",
        }
    )
    assert config.listeners == (
        Endpoint("INTERNAL", "", 9092, "PLAINTEXT"),
        Endpoint("EXTERNAL", "::1", 9093, "PLAINTEXT"),
    )
    assert [str(endpoint) for endpoint in config.listeners] == [
        "INTERNAL://:9092",
        "EXTERNAL://[::1]:9093",
    ]
    assert config.advertised_listeners[0].host == "kafka.example"
    assert config.inter_broker_listener_name == "INTERNAL"


def test_a_kraft_configuration_serves_only_the_broker_listener() -> None:
    config = BrokerConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert [endpoint.listener_name for endpoint in config.listeners] == ["PLAINTEXT"]
    assert config.broker_id == 1


def test_two_listeners_share_a_port_only_over_ipv4_and_ipv6() -> None:
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"}
    BrokerConfig({**protocols, "listeners": "PLAINTEXT://127.0.0.1:9092,B://[::1]:9092"})
    BrokerConfig({**protocols, "listeners": "PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0"})
    for second in ("127.0.0.2", "localhost", ""):
        with pytest.raises(ConfigError, match="different port"):
            BrokerConfig(
                {**protocols, "listeners": f"PLAINTEXT://127.0.0.1:9092,B://{second}:9092"}
            )


def test_what_is_advertised_has_the_bound_port_and_a_host() -> None:
    endpoints = (Endpoint("A", "", 0, "PLAINTEXT"), Endpoint("B", "b.example", 1, "PLAINTEXT"))
    assert [str(e) for e in advertise(endpoints, {"A": 4711, "B": 9}, "here")] == [
        "A://here:4711",
        "B://b.example:1",
    ]


def test_bounds_for_single_hosts() -> None:
    config = BrokerConfig({"max.connections.per.ip.overrides": "a.example: 5, 127.0.0.1:6,::1:7"})
    assert config.max_connections_per_ip_overrides == {"a.example": 5, "127.0.0.1": 6, "::1": 7}


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"log.segment.bytes": "13"}, "Value must be at least 14"),
        ({"num.partitions": "many"}, "Not a number of type INT"),
        ({"broker.id": "-2"}, "at least -1"),
        ({"log.dirs": " , "}, "at least one log directory"),
        ({"log.dirs": "/a,/a"}, "named twice"),
        ({"log.retention.ms": "0"}, "at least 1, or -1"),
        ({"log.roll.ms": "0"}, "log.roll.ms"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms"),
        ({"log.cleanup.policy": "remove"}, "must be one of: compact, delete"),
        ({"compression.type": "brotli"}, "must be one of"),
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "PLAINTEXT:9092"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://a b:9092"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:70000"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "different name"),
        ({"listeners": "OTHER://:9092"}, "no protocol for OTHER"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot be advertised"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot be advertised"),
        ({"advertised.listeners": "SSL://h:1"}, "listeners has no SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "not a security protocol"),
        ({"inter.broker.listener.name": "OTHER"}, "no such listener"),
        ({"security.inter.broker.protocol": "SSL"}, "no such listener among those advertised"),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "only one of",
        ),
        ({"max.connections.per.ip.overrides": "host"}, "host:count"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip.overrides"),
        ({"num.replica.fetchers": "0"}, "must be at least 1"),
        ({"queued.max.request.bytes": "1000000"}, "socket.request.max.bytes"),
        ({"replica.selector.class": "com.example.Selector"}, "must be one of"),
        ({"group.coordinator.rebalance.protocols": "classic,share"}, "must be one of"),
        ({"replica.fetch.wait.max.ms": "31000"}, "replica.socket.timeout.ms"),
        (
            {"replica.fetch.wait.max.ms": "20000", "replica.lag.time.max.ms": "10000"},
            "replica.lag.time.max.ms",
        ),
        (
            {
                "log.cleaner.min.compaction.lag.ms": "5",
                "log.cleaner.max.compaction.lag.ms": "4",
            },
            "must not be above",
        ),
    ],
)
def test_a_bad_configuration_is_refused_with_the_reason(
    properties: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig(properties)
    assert complaint in str(raised.value)


def test_kafkas_own_server_properties_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        """
        broker.id=0
        #listeners=PLAINTEXT://:9092
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        log.dirs=/tmp/kafka-logs
        num.partitions=1
        num.recovery.threads.per.data.dir=1
        offsets.topic.replication.factor=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        log.retention.hours=168
        log.segment.bytes=1073741824
        log.retention.check.interval.ms=300000
        zookeeper.connect=localhost:2181
        zookeeper.connection.timeout.ms=18000
        group.initial.rebalance.delay.ms=0
        """
    )
    config = load_broker_config(path)
    assert config["num.network.threads"] == 3
    assert config["zookeeper.connect"] == "localhost:2181"
    assert "num.io.threads" in config.warnings[0]


def test_each_cleaner_thread_needs_a_megabyte_for_its_map() -> None:
    with pytest.raises(ConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        BrokerConfig({"log.cleaner.threads": "4", "log.cleaner.dedupe.buffer.size": "4194304"})
