from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.config_broker import (
    ConfigBroker,
    ConfigClusterBroker,
    create_topic,
    delete_topic,
    found_cluster,
)
from tests.support.metadata import in_loop
from tidelog.broker.dynamic_config import Edit
from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.config.jaas import PLAIN_MODULE
from tidelog.controller import znodes
from tidelog.controller.metadata_store import Create
from tidelog.errors import ErrorCode, KafkaError

WITH_PLAIN = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_a="b";',
}


def setting(**texts: str) -> Edit:
    """An edit that sets keys, written with underscores for dots."""
    return lambda before: {**before, **{k.replace("_", "."): v for k, v in texts.items()}}


async def refused(change: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await change  # type: ignore[misc]
    return raised.value.code


@in_loop
async def test_topics_without_overrides_share_one_log_config(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path, {"log.segment.bytes": "5000"})
    await broker.create_topic("a")
    config = broker.dynamic_config.log_config
    assert config("a") is config("b")
    assert config("a").segment_bytes == 5000
    await broker.close()


@in_loop
async def test_a_topic_created_with_overrides_has_them_at_once(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a", {"segment.bytes": "5000"})
    assert broker.dynamic_config.topic_overrides("a") == {"segment.bytes": "5000"}
    assert broker.dynamic_config.log_config("a").segment_bytes == 5000
    await broker.close()


@in_loop
async def test_a_change_of_a_topic_is_stored_applied_and_told(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a")
    told: list[str] = []
    broker.dynamic_config.on_topic_change(told.append)
    await broker.dynamic_config.alter_topic("a", setting(retention_ms="7"))
    data, _ = await broker.store.get(znodes.config_path("topics", "a"))
    assert data == b'{"version":1,"config":{"retention.ms":"7"}}'
    assert broker.dynamic_config.log_config("a").retention_ms == 7
    assert told == ["a"]
    await broker.close()


@in_loop
async def test_overrides_survive_a_restart(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a", {"segment.bytes": "5000"})
    await broker.dynamic_config.alter_topic("a", setting(retention_ms="7"))
    await broker.dynamic_config.alter_broker(None, setting(message_max_bytes="100"))
    await broker.dynamic_config.alter_broker(0, setting(max_connections="9"))
    await broker.close()
    broker = ConfigBroker(tmp_path)
    config = broker.dynamic_config.log_config("a")
    assert (config.segment_bytes, config.retention_ms, config.max_message_bytes) == (5000, 7, 100)
    assert broker.config["max.connections"] == 9
    await broker.close()


@in_loop
async def test_settings_that_need_each_other_survive_a_restart(tmp_path: Path) -> None:
    """Whichever is stored first, and in whichever layer the other one is."""
    nobody_else = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}
    one_broker = {"log.cleaner.min.compaction.lag.ms": "70", "message.max.bytes": "100"}
    broker = ConfigBroker(tmp_path, {"log.cleaner.max.compaction.lag.ms": "60"})
    await broker.create_topic("a", {"min.compaction.lag.ms": "80", "max.compaction.lag.ms": "90"})
    longer = {"log.cleaner.max.compaction.lag.ms": "70"}
    await broker.dynamic_config.alter_broker(None, lambda _: {**nobody_else, **longer})
    await broker.dynamic_config.alter_broker(0, lambda _: one_broker)
    await broker.close()
    broker = ConfigBroker(tmp_path, {"log.cleaner.max.compaction.lag.ms": "60"})
    for name, text in (nobody_else | longer | one_broker).items():
        assert str(broker.config[name]) == text
    assert broker.dynamic_config.log_config("a").min_compaction_lag_ms == 80
    await broker.close()


@in_loop
async def test_a_stored_setting_that_cannot_hold_is_left_out_alone(tmp_path: Path) -> None:
    """Another version may have stored it."""
    broker = ConfigBroker(tmp_path)
    stored = {"message.max.bytes": "never", "max.connections": "9", "max.connections.per.ip": "0"}
    data = znodes.encode_config(stored)
    await broker.store.create(znodes.config_path("brokers", znodes.DEFAULT_ENTITY), data)
    await broker.close()
    broker = ConfigBroker(tmp_path)
    assert broker.config["max.connections"] == 9
    assert broker.config["max.connections.per.ip"] == BrokerConfig({})["max.connections.per.ip"]
    await broker.close()


@in_loop
async def test_a_deleted_topic_takes_its_overrides_along(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a")
    await broker.dynamic_config.alter_topic("a", setting(retention_ms="7"))
    await broker.topics.delete("a")
    assert broker.dynamic_config.topic_overrides("a") == {}
    await broker.create_topic("a")
    assert broker.dynamic_config.log_config("a").retention_ms == 604_800_000
    await broker.close()


@in_loop
async def test_a_topic_that_is_gone_cannot_be_changed(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    change = broker.dynamic_config.alter_topic("gone", setting(retention_ms="7"))
    assert await refused(change) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await broker.store.exists(znodes.config_path("topics", "gone")) is None
    await broker.close()


@in_loop
async def test_a_refused_change_changes_nothing(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a")
    with pytest.raises(ConfigError):
        await broker.dynamic_config.alter_topic("a", setting(retention_ms="never"))
    with pytest.raises(ConfigError):
        await broker.dynamic_config.alter_broker(None, setting(message_max_bytes="-1"))
    assert broker.dynamic_config.topic_overrides("a") == {}
    assert broker.dynamic_config.layers.dynamic_default == {}
    await broker.close()


@in_loop
async def test_validating_only_checks(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a")
    dynamic = broker.dynamic_config
    await dynamic.alter_topic("a", setting(retention_ms="7"), validate_only=True)
    await dynamic.alter_broker(0, setting(max_connections="7"), validate_only=True)
    assert dynamic.topic_overrides("a") == {}
    assert broker.config["max.connections"] == 50_000
    with pytest.raises(ConfigError):
        await dynamic.alter_topic("a", setting(retention_ms="x"), validate_only=True)
    await broker.close()


@in_loop
async def test_changes_made_at_once_all_take_effect(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a")
    alter = broker.dynamic_config.alter_topic
    await asyncio.gather(
        alter("a", setting(retention_ms="7")),
        alter("a", setting(segment_ms="8")),
        alter("a", setting(flush_ms="9")),
    )
    assert broker.dynamic_config.topic_overrides("a") == {
        "retention.ms": "7",
        "segment.ms": "8",
        "flush.ms": "9",
    }
    await broker.close()


@in_loop
async def test_a_caller_that_gives_up_does_not_stop_its_change(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a")
    told = asyncio.Event()
    broker.dynamic_config.on_topic_change(lambda name: told.set())
    task = asyncio.create_task(broker.dynamic_config.alter_topic("a", setting(flush_ms="9")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait_for(told.wait(), 5)
    assert broker.dynamic_config.topic_overrides("a") == {"flush.ms": "9"}
    await broker.close()


@in_loop
async def test_the_broker_goes_before_all_brokers_goes_before_the_file(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path, {"message.max.bytes": "1", "max.connections": "1"})
    await broker.dynamic_config.alter_broker(None, setting(message_max_bytes="2"))
    assert (broker.config["message.max.bytes"], broker.config["max.connections"]) == (2, 1)
    await broker.dynamic_config.alter_broker(0, setting(message_max_bytes="3"))
    assert broker.config["message.max.bytes"] == 3
    await broker.dynamic_config.alter_broker(0, lambda before: {})
    assert broker.config["message.max.bytes"] == 2
    data, _ = await broker.store.get("/config/brokers/<default>")
    assert data == b'{"version":1,"config":{"message.max.bytes":"2"}}'
    await broker.close()


@in_loop
async def test_a_change_of_the_broker_reaches_topics_and_listeners(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("plain")
    await broker.create_topic("own", {"segment.bytes": "5000"})
    told: list[BrokerConfig] = []
    broker.dynamic_config.on_broker_change(told.append)
    assert broker.dynamic_config.log_config("own").retention_ms == 604_800_000
    await broker.dynamic_config.alter_broker(None, setting(log_retention_ms="7"))
    assert told == [broker.config]
    assert broker.dynamic_config.log_config("plain").retention_ms == 7
    own = broker.dynamic_config.log_config("own")
    assert (own.retention_ms, own.segment_bytes) == (7, 5000)
    await broker.close()


@pytest.mark.parametrize(
    ("broker_id", "key", "value"),
    [
        (0, "log.dirs", "/x"),
        (None, "num.partitions", "3"),
        (0, "listeners", "PLAINTEXT://:1"),
        (0, "ssl.keystore.location", "/x"),
        (None, "ssl.client.auth", "none"),
        (None, "listener.name.plaintext.connections.max.reauth.ms", "5"),
    ],
)
def test_what_kafka_would_not_change_is_an_invalid_request(
    broker_id: int | None, key: str, value: str, tmp_path: Path
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        change = broker.dynamic_config.alter_broker(broker_id, lambda before: {key: value})
        assert await refused(change) is ErrorCode.INVALID_REQUEST
        await broker.close()

    story()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.key", "1"),
        ("max.connections", "many"),
        ("log.cleaner.min.compaction.lag.ms", "9223372036854775808"),
        ("listener.name.plaintext.ssl.key.password", "secret"),
        ("log.retention.ms", "0"),
    ],
)
def test_unknown_keys_and_bad_values_of_a_broker_are_refused(
    key: str, value: str, tmp_path: Path
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        with pytest.raises(ConfigError):
            await broker.dynamic_config.alter_broker(0, lambda before: {key: value})
        await broker.close()

    story()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.io.threads", "16"),
        ("background.threads", "20"),
        ("metric.reporters", "com.example.Reporter"),
        ("remote.log.manager.copy.max.bytes.per.second", "5"),
        ("principal.builder.class", "com.example.Builder"),
        ("listener.name.plaintext.num.network.threads", "2"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
    ],
)
def test_a_change_of_a_broker_that_would_have_no_effect_is_refused(
    key: str, value: str, tmp_path: Path
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        with pytest.raises(ConfigError):
            await broker.dynamic_config.alter_broker(0, lambda before: {key: value})
        assert broker.dynamic_config.layers.dynamic_broker == {}
        await broker.close()

    story()


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.external.max.connections",
        "listener.name.plaintext.connections.max.reauth.ms",
        "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms",
        "listener.name.sasl_plaintext.plian.connections.max.reauth.ms",
    ],
)
def test_a_change_for_a_listener_or_mechanism_that_is_not_there_is_refused(
    name: str, tmp_path: Path
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path, WITH_PLAIN)
        with pytest.raises(ConfigError, match=re.escape(name)):
            await broker.dynamic_config.alter_broker(0, lambda before: {name: "5"})
        assert broker.dynamic_config.layers.dynamic_broker == {}
        enabled = "listener.name.sasl_plaintext.plain.connections.max.reauth.ms"
        await broker.dynamic_config.alter_broker(0, lambda before: {enabled: "5"})
        assert broker.config.sasl_listeners["SASL_PLAINTEXT"].max_reauth_ms == {"PLAIN": 5}
        await broker.close()

    story()


@in_loop
@pytest.mark.parametrize(("threads", "allowed"), [(0, 0), (1, 0), (2, 1), (8, 1), (9, 0)])
async def test_cleaner_threads_change_by_half_or_double_at_most(
    tmp_path: Path, threads: int, allowed: int
) -> None:
    broker = ConfigBroker(tmp_path, {"log.cleaner.threads": "4"})
    change = broker.dynamic_config.alter_broker(None, setting(log_cleaner_threads=str(threads)))
    if allowed:
        await change
    else:
        with pytest.raises(ConfigError, match="cleaner"):
            await change
    await broker.close()


@in_loop
async def test_what_does_not_fit_in_the_store_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a", {"segment.bytes": "5000"})
    texts = {"segment.bytes": "5000", "from.the.future": "1", "retention.ms": "x"}
    await broker.store.set(znodes.config_path("topics", "a"), znodes.encode_config(texts))
    texts = {"message.max.bytes": "7", "log.dirs": "/x", "who.knows": "1", "max.connections": "x"}
    await broker.store.create(znodes.config_path("brokers", "0"), znodes.encode_config(texts))
    await broker.store.create(znodes.config_path("brokers", "<default>"), b"garbage")
    await broker.close()
    broker = ConfigBroker(tmp_path)
    config = broker.dynamic_config.log_config("a")
    assert (config.segment_bytes, config.retention_ms) == (5000, 604_800_000)
    assert broker.config["message.max.bytes"] == 7
    assert len(await broker.dynamic_config.describe_topic("a")) == 36
    for word in ("from.the.future", "retention.ms", "log.dirs", "who.knows", "max.connections"):
        assert word in caplog.text
    await broker.close()


@in_loop
async def test_a_listeners_bound_of_connections_may_be_set_for_all_brokers(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    key = "listener.name.plaintext.max.connections"
    await broker.dynamic_config.alter_broker(None, lambda before: {key: "5"})
    assert broker.config[key] == 5
    await broker.close()


def test_the_brokers_number_may_come_from_elsewhere(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path, broker_id=1001)
    assert broker.config.broker_id == 1001


@in_loop
async def test_a_broker_that_has_not_heard_of_overrides_keeps_them(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    stranger = ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {"cleanup.policy": "compact"}, stranger)
    await stranger.dynamic_config.alter_topic("t", setting(retention_ms="7"))
    data, _ = await store.get(znodes.config_path("topics", "t"))
    assert znodes.decode_config(data) == {"cleanup.policy": "compact", "retention.ms": "7"}
    assert stranger.dynamic_config.log_config("t").compact
    await store.close()


@in_loop
async def test_what_others_have_set_for_all_brokers_is_kept(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    await one.dynamic_config.alter_broker(None, setting(message_max_bytes="100"))
    await two.dynamic_config.alter_broker(None, setting(log_retention_ms="7"))
    data, _ = await store.get(znodes.config_path("brokers", "<default>"))
    assert znodes.decode_config(data) == {"message.max.bytes": "100", "log.retention.ms": "7"}
    assert two.config["message.max.bytes"] == 100
    await store.close()


@in_loop
async def test_a_change_that_another_comes_before_begins_again(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {}, one, two)
    await asyncio.gather(
        one.dynamic_config.alter_topic("t", setting(retention_ms="7")),
        two.dynamic_config.alter_topic("t", setting(segment_ms="8")),
        one.dynamic_config.alter_broker(None, setting(message_max_bytes="100")),
        two.dynamic_config.alter_broker(None, setting(log_retention_ms="7")),
    )
    data, _ = await store.get(znodes.config_path("topics", "t"))
    assert znodes.decode_config(data) == {"retention.ms": "7", "segment.ms": "8"}
    data, _ = await store.get(znodes.config_path("brokers", "<default>"))
    assert znodes.decode_config(data) == {"message.max.bytes": "100", "log.retention.ms": "7"}
    await store.close()


@in_loop
async def test_a_change_made_elsewhere_meanwhile_is_not_undone_by_ones_own(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    await one.dynamic_config.alter_broker(None, setting(message_max_bytes="100"))
    own = setting(max_connections="7")
    change = asyncio.create_task(two.dynamic_config.alter_broker(2, own))
    for _ in range(3):
        await asyncio.sleep(0)  # it is being written
    await two.dynamic_config.broker_announced("<default>")
    await change
    assert (two.config["message.max.bytes"], two.config["max.connections"]) == (100, 7)
    await store.close()


@in_loop
async def test_a_change_keeps_what_only_another_kafka_knows(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("a")
    foreign = znodes.encode_config({"from.the.future": "1"})
    await broker.store.set(znodes.config_path("topics", "a"), foreign)
    await broker.store.create(znodes.config_path("brokers", "0"), foreign)
    await broker.dynamic_config.alter_topic("a", setting(retention_ms="7"))
    await broker.dynamic_config.alter_broker(0, setting(max_connections="7"))
    data, _ = await broker.store.get(znodes.config_path("topics", "a"))
    assert znodes.decode_config(data) == {"from.the.future": "1", "retention.ms": "7"}
    data, _ = await broker.store.get(znodes.config_path("brokers", "0"))
    assert znodes.decode_config(data) == {"from.the.future": "1", "max.connections": "7"}
    assert broker.dynamic_config.log_config("a").retention_ms == 7
    assert broker.config["max.connections"] == 7
    with pytest.raises(ConfigError, match=r"from\.the\.future"):
        await broker.dynamic_config.alter_topic("a", lambda before: {"from.the.future": "2"})
    await broker.close()


@in_loop
async def test_a_topic_made_again_has_none_of_the_overrides_it_had_before(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    await create_topic(store, "t", {"retention.ms": "1000"})
    broker = ConfigClusterBroker(store, 2)  # loads what is being deleted, and never sees its image
    await delete_topic(store, "t", broker)
    await create_topic(store, "t", {})
    told: list[str] = []
    broker.dynamic_config.on_topic_change(told.append)
    await broker.dynamic_config.learn_topics(["t"])
    assert broker.dynamic_config.topic_overrides("t") == {}
    assert broker.dynamic_config.log_config("t").retention_ms == 604_800_000
    assert told == ["t"]
    await store.close()


@in_loop
async def test_the_overrides_of_a_topic_that_is_there_are_read_once(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    broker = ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {"retention.ms": "1000"}, broker)
    await broker.dynamic_config.learn_topics(["t"])
    await store.set(znodes.config_path("topics", "t"), znodes.encode_config({}))
    await broker.dynamic_config.learn_topics(["t"])
    assert broker.dynamic_config.log_config("t").retention_ms == 1000
    await store.close()


def test_access_lists_in_the_store_that_bind_nobody_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        await broker.store.multi([Create("/kafka-acl/Topic", make_parents=True)])
        await broker.close()

        broker = ConfigBroker(tmp_path)
        assert "access control lists" not in caplog.text
        await broker.store.multi([Create("/kafka-acl/Topic/orders", b"{}")])
        await broker.close()

        await ConfigBroker(tmp_path).close()
        assert "access control lists, which bind nobody" in caplog.text

    story()


@pytest.mark.parametrize("change", [{"max_connections_per_ip": "0"}, {"num_replica_fetchers": "0"}])
def test_a_value_that_would_end_all_service_is_refused(
    tmp_path: Path, change: dict[str, str]
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        with pytest.raises(ConfigError, match=next(iter(change)).replace("_", r"\.")):
            await broker.dynamic_config.alter_broker(None, setting(**change))
        assert broker.dynamic_config.layers.dynamic_default == {}
        await broker.close()

    story()


def test_a_limit_for_a_host_without_an_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def known_hosts(host: str, *rest: object, **options: object) -> list[object]:
        if host != "127.0.0.1":
            raise OSError(-2, "Name or service not known")
        return []

    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        monkeypatch.setattr("socket.getaddrinfo", known_hosts)
        edit = setting(max_connections_per_ip_overrides="127.0.0.1:5")
        await broker.dynamic_config.alter_broker(0, edit)
        edit = setting(max_connections_per_ip_overrides="127.0.0.1:5,nobody.example:5")
        with pytest.raises(ConfigError, match=r"nobody\.example has no address"):
            await broker.dynamic_config.alter_broker(0, edit)
        texts = broker.dynamic_config.layers.dynamic_broker
        assert texts == {"max.connections.per.ip.overrides": "127.0.0.1:5"}
        await broker.close()

    story()
