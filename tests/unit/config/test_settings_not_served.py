"""Keys that would have to protect data or place it, and that nothing here honours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.config.broker import BROKER_TABLE, BrokerConfig
from tidelog.config.definition import ConfigError, EffectKind, Key, to_text
from tidelog.config.server_properties import load_broker_config
from tidelog.config.topic import TOPIC_TABLE, validate_overrides

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://kafka.example:9092",
    "controller.listener.names": "CONTROLLER",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", "com.example.Authorizer"),
        ("super.users", "User:admin"),
        ("principal.builder.class", "com.example.Builder"),
        ("alter.config.policy.class.name", "com.example.Policy"),
        ("create.topic.policy.class.name", "com.example.Policy"),
        ("client.quota.callback.class", "com.example.Quotas"),
        ("remote.log.storage.system.enable", "true"),
        ("zookeeper.set.acl", "true"),
        ("zookeeper.ssl.client.enable", "true"),
        ("zookeeper.metadata.migration.enable", "true"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.jaas.config", "hush"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("ssl.client.auth", "required"),
        ("ssl.keystore.location", "/keys"),
        ("ssl.truststore.location", "/trust"),
        ("group.share.enable", "true"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.no.such.key", "1"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "hush"),
        ("listener.name.plaintext.principal.builder.class", "com.example.Builder"),
    ],
)
def test_the_broker_does_not_start_with_a_key_it_cannot_honour(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig({name: value})
    message = str(raised.value)
    assert name in message
    assert "remove the key" in message
    assert "hush" not in message


def test_all_refused_keys_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig(
            {"principal.builder.class": "x.Y", "zookeeper.set.acl": "true", "num.partitions": "2"}
        )
    assert "principal.builder.class: " in str(raised.value)
    assert "zookeeper.set.acl: " in str(raised.value)
    assert "num.partitions" not in str(raised.value)


@pytest.mark.parametrize(
    "key",
    [key for key in BROKER_TABLE if key.effect.kind is EffectKind.REFUSED],
    ids=lambda key: key.name,
)
def test_a_refused_key_may_be_set_to_its_default(key: Key) -> None:
    BrokerConfig({key.name: to_text(key.default) or ""})


@pytest.mark.parametrize(
    "quorum",
    [
        {"controller.quorum.voters": "1@localhost:9093"},
        {"controller.quorum.voters": "1@kafka.example:9093"},
        {"controller.quorum.bootstrap.servers": "localhost:9093"},
        {"controller.quorum.bootstrap.servers": "kafka.example:9093"},
        {"controller.quorum.bootstrap.servers": "[::1]:9093"},
    ],
)
def test_a_kraft_node_that_is_alone_starts_with_the_embedded_store(quorum: dict[str, str]) -> None:
    config = BrokerConfig({**COMBINED, **quorum})
    assert [endpoint.listener_name for endpoint in config.listeners] == ["PLAINTEXT"]
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"process.roles": "broker"}, "process.roles=broker: no KRaft quorum"),
        (
            {"process.roles": "controller", "listeners": "CONTROLLER://:9093"},
            "process.roles=controller: no KRaft quorum",
        ),
        ({"zookeeper.connect": "localhost:2181"}, "process.roles and zookeeper.connect"),
        ({"controller.quorum.voters": "1@a:1,2@b:1"}, "names another node, 2@b:1"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "names another node"),
        ({"controller.quorum.voters": "localhost:9093"}, "id@host:port"),
        ({"controller.quorum.bootstrap.servers": "b.example:9093"}, "names another node"),
        ({"controller.quorum.bootstrap.servers": "localhost:9094"}, "names another node"),
        ({"controller.quorum.bootstrap.servers": "localhost"}, "host:port"),
        ({"node.id": "-1"}, "node.id must be set"),
    ],
)
def test_a_kraft_node_of_a_larger_cluster_is_refused(
    properties: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig({**COMBINED, **properties})
    assert complaint in str(raised.value)


def test_voters_of_others_are_refused_without_a_role_too() -> None:
    with pytest.raises(ConfigError, match="names another node"):
        BrokerConfig({"node.id": "1", "controller.quorum.voters": "2@b:9093"})


@pytest.mark.parametrize(
    "name", ["remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"]
)
def test_a_topic_cannot_have_what_is_not_served(name: str) -> None:
    assert TOPIC_TABLE[name].effect.kind is EffectKind.REFUSED
    validate_overrides({name: "false"})
    with pytest.raises(ConfigError, match=f"{name}: there is no tiered storage"):
        validate_overrides({name: "true"})


class TestServerProperties:
    TEXT = """# comment
log.segment.byte=5
num.partitions=1
com.example.plugin.key=x

num.partitions=2
log.segment.byte=6
"""

    def test_unknown_keys_and_keys_set_twice_are_warned_of_with_their_lines(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "server.properties"
        path.write_text(self.TEXT)
        config = load_broker_config(path, [("broker.idd", "1"), ("broker.id", "3")])
        assert config.warnings == (
            "line 2: unknown configuration key log.segment.byte; did you mean log.segment.bytes?",
            "line 4: unknown configuration key com.example.plugin.key",
            "line 6: num.partitions is set again (line 3); the last one holds",
            "line 7: log.segment.byte is set again (line 2); the last one holds",
            "--override: unknown configuration key broker.idd; did you mean broker.id?",
        )
        assert config.num_partitions == 2
        assert config.broker_id == 3

    def test_an_override_of_the_file_is_not_a_key_set_twice(self, tmp_path: Path) -> None:
        path = tmp_path / "server.properties"
        path.write_text("num.partitions=1\n")
        config = load_broker_config(path, [("num.partitions", "2")], strict=True)
        assert (config.num_partitions, config.warnings) == (2, ())

    def test_a_strict_start_refuses_them_all_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "server.properties"
        path.write_text(self.TEXT)
        with pytest.raises(ConfigError) as raised:
            load_broker_config(path, [("broker.idd", "1")], strict=True)
        for place in ("line 2", "line 4", "line 6", "line 7", "--override"):
            assert f"{place}: " in str(raised.value)
