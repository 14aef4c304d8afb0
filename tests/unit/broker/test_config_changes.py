from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.config_broker import (
    ConfigClusterBroker,
    create_topic,
    found_cluster,
)
from tests.support.metadata import in_loop
from tidelog.broker.config_changes import config_changes
from tidelog.broker.quotas.quota_entity import QuotaEntity
from tidelog.config.group import SESSION_TIMEOUT, GroupConfig
from tidelog.controller import znodes
from tidelog.controller.announcements import Announcements
from tidelog.controller.metadata_store import (
    Create,
    Operation,
    Outcome,
    OutcomeUnknown,
    SetData,
    Stat,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.sasl.scram_credential import ScramCredential, ScramMechanism


def following(broker: ConfigClusterBroker) -> Announcements:
    clock = FakeClock()
    return config_changes(broker.store, broker.dynamic_config, clock=clock, timer=clock)


async def rounds(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@in_loop
async def test_what_changed_while_the_broker_started_is_in_force_once_it_follows(
    tmp_path: Path,
) -> None:
    store = found_cluster(tmp_path)
    one = ConfigClusterBroker(store, 1)
    await create_topic(store, "t", {}, one)
    starting = ConfigClusterBroker(store, 2)  # has read the configuration, and loads its logs
    await one.dynamic_config.alter_topic("t", lambda before: {"retention.ms": "7"})
    await one.dynamic_config.alter_broker(None, lambda before: {"message.max.bytes": "100"})
    changes = following(starting)
    changes.start()
    await changes.caught_up()
    assert starting.dynamic_config.log_config("t").retention_ms == 7
    assert starting.config["message.max.bytes"] == 100
    changes.close()
    await store.close()


@in_loop
async def test_a_groups_settings_made_elsewhere_are_taken_over(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    changes = following(two)
    changes.start()
    await changes.caught_up()
    told: list[str] = []
    two.dynamic_config.on_group_change(told.append)
    await one.dynamic_config.alter_group("a/b", lambda before: {SESSION_TIMEOUT: "50000"})
    await rounds()
    own = two.dynamic_config.group_config_or_none("a/b")
    assert own == one.dynamic_config.group_config_or_none("a/b") == GroupConfig(5_000, 50_000)
    await one.dynamic_config.alter_group("a/b", lambda before: {})
    await rounds()
    assert two.dynamic_config.group_config_or_none("a/b") is None
    assert told == ["a/b", "a/b"]
    changes.close()
    await store.close()


@in_loop
async def test_nothing_is_taken_over_before_the_start_or_after_the_end(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    changes = following(two)
    await one.dynamic_config.alter_broker(None, lambda before: {"message.max.bytes": "100"})
    changes.session_began()
    await rounds()
    assert two.config["message.max.bytes"] != 100
    changes.start()
    await changes.caught_up()
    assert two.config["message.max.bytes"] == 100
    changes.close()
    await one.dynamic_config.alter_broker(None, lambda before: {"message.max.bytes": "200"})
    changes.session_began()
    await rounds()
    assert two.config["message.max.bytes"] == 100
    await store.close()


@in_loop
async def test_a_change_made_elsewhere_is_taken_over(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {}, one, two)
    changes = following(two)
    changes.start()
    await changes.caught_up()
    told = asyncio.Event()
    two.dynamic_config.on_topic_change(lambda name: told.set())
    await one.dynamic_config.alter_topic("t", lambda before: {"retention.ms": "7"})
    await asyncio.wait_for(told.wait(), 5)
    assert two.dynamic_config.log_config("t").retention_ms == 7
    changes.close()
    await store.close()


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.INVALID_CONFIG), ValueError("a bug")])
@in_loop
async def test_a_change_that_cannot_be_taken_over_does_not_keep_back_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {}, one, two)

    async def fail(_: str) -> None:
        raise error

    monkeypatch.setattr(two.dynamic_config, "topic_announced", fail)
    await one.dynamic_config.alter_topic("t", lambda before: {"retention.ms": "7"})
    await one.dynamic_config.alter_broker(None, lambda before: {"message.max.bytes": "100"})
    changes = following(two)
    changes.start()
    await changes.caught_up()
    assert two.config["message.max.bytes"] == 100
    changes.close()
    await store.close()


@in_loop
async def test_a_change_that_an_old_broker_announces_is_taken_over(tmp_path: Path) -> None:
    """Version 1 of the node names entity type and name apart from each other."""
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {}, one, two)
    changes = following(two)
    changes.start()
    await changes.caught_up()
    await store.set(znodes.config_path("topics", "t"), znodes.encode_config({"retention.ms": "7"}))
    node = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    await store.create(znodes.CONFIG_CHANGE, node, sequence=True)
    await rounds()
    assert two.dynamic_config.log_config("t").retention_ms == 7
    changes.close()
    await store.close()


@pytest.mark.parametrize("node", [b"", b"[]", b'{"version":3}', b'{"version":1}'])
@in_loop
async def test_a_node_that_makes_no_sense_does_not_keep_back_those_behind_it(
    tmp_path: Path, node: bytes
) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    await store.create(znodes.CONFIG_CHANGE, node, sequence=True)
    await one.dynamic_config.alter_broker(None, lambda before: {"message.max.bytes": "100"})
    changes = following(two)
    changes.start()
    await changes.caught_up()
    assert two.config["message.max.bytes"] == 100
    changes.close()
    await store.close()


@in_loop
async def test_a_store_that_could_not_be_read_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    clock = FakeClock()
    changes = config_changes(two.store, two.dynamic_config, clock=clock, timer=clock)
    await one.dynamic_config.alter_broker(None, lambda before: {"message.max.bytes": "100"})
    with monkeypatch.context() as away:
        away.setattr(two.store, "children", _unreachable)
        changes.start()
        await changes.caught_up()
    assert two.config["message.max.bytes"] != 100
    clock.advance(ms=1_000)
    await changes.caught_up()
    assert two.config["message.max.bytes"] == 100
    changes.close()
    await store.close()


@pytest.mark.parametrize("error", [StoreUnavailable("/"), StoreClosed("/")])
@in_loop
async def test_a_change_that_could_not_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    clock = FakeClock()
    changes = config_changes(two.store, two.dynamic_config, clock=clock, timer=clock)
    await one.dynamic_config.alter_broker(None, lambda before: {"message.max.bytes": "100"})
    get = two.store.get

    async def away(path: str, **given: Any) -> tuple[bytes, Stat]:
        if path.startswith("/config/brokers/"):
            raise error
        return await get(path, **given)

    with monkeypatch.context() as patched:
        patched.setattr(two.store, "get", away)
        changes.start()
        await changes.caught_up()
    assert two.config["message.max.bytes"] != 100
    clock.advance(ms=1_000)
    await changes.caught_up()
    assert two.config["message.max.bytes"] == 100
    changes.close()
    await store.close()


ENTITIES = {
    "brokers/<default>": {"message.max.bytes": "100"},
    "topics/t": {"retention.ms": "7"},
    "groups/g": {SESSION_TIMEOUT: "50000"},
    "client-metrics/m": {"interval.ms": "1000"},
    "users/a": {"producer_byte_rate": "7"},
    "users/a/clients/c": {"producer_byte_rate": "8"},
    "clients/c": {"producer_byte_rate": "9"},
    "ips/127.0.0.1": {"connection_creation_rate": "10"},
}


def in_force(broker: ConfigClusterBroker) -> tuple[object, ...]:
    config = broker.dynamic_config
    quotas = {str(entity): dict(values) for entity, values in config.quota_limits.all()}
    return (
        config.broker_config["message.max.bytes"],
        config.log_config("t").retention_ms,
        config.group_config_or_none("g"),
        dict(config.subscriptions),
        quotas,
    )


@in_loop
async def test_who_was_away_for_long_reads_everything_anew(tmp_path: Path) -> None:
    """What was announced meanwhile may be announced no more."""
    store = found_cluster(tmp_path)
    away = ConfigClusterBroker(store, 2)
    await create_topic(store, "t", {}, away)
    changes = following(away)
    changes.start()
    await changes.caught_up()
    fresh = in_force(away)
    await away.dynamic_config.learn_topics(["t"])
    for entity, texts in ENTITIES.items():
        kind, _, name = entity.partition("/")
        path, data = znodes.config_path(kind, name), znodes.encode_config(texts)
        there = await store.exists(path) is not None
        await store.multi([SetData(path, data) if there else Create(path, data, make_parents=True)])
    changes.session_began(is_new=False)
    await changes.caught_up()
    assert in_force(away) == fresh
    changes.session_began()
    await changes.caught_up()
    assert in_force(away) == in_force(ConfigClusterBroker(store, 3))
    assert len(away.dynamic_config.subscriptions) == 1
    assert len(list(away.dynamic_config.quota_limits.all())) == 4
    for entity in sorted(ENTITIES, reverse=True):
        await store.set(znodes.config_path(*entity.split("/", 1)), znodes.encode_config({}))
    changes.session_began()
    await changes.caught_up()
    assert in_force(away) == fresh
    changes.close()
    await store.close()


@in_loop
async def test_a_deleted_user_is_forgotten_after_a_long_time_away(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, away = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    mechanism = ScramMechanism.SCRAM_SHA_256
    credential = ScramCredential.of_salted_password(mechanism, b"p" * 32, b"salt", 4096).to_text()
    await one.dynamic_config.alter_user("a", lambda before: {"SCRAM-SHA-256": credential})
    changes = following(away)
    changes.start()
    await changes.caught_up()
    assert away.dynamic_config.scram_credential_or_none(mechanism, "a") is not None
    await store.delete(znodes.config_path("users", "a"))
    changes.session_began()
    await changes.caught_up()
    assert away.dynamic_config.scram_credential_or_none(mechanism, "a") is None
    changes.close()
    await store.close()


@in_loop
async def test_a_change_and_its_announcement_are_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that died between the two would leave a deleted user able to log in."""
    store = found_cluster(tmp_path)
    one = ConfigClusterBroker(store, 1)
    multis: list[list[str]] = []
    multi = one.store.multi

    async def noted(operations: Sequence[Operation]) -> list[Outcome]:
        multis.append([each.path for each in operations])
        return await multi(operations)

    monkeypatch.setattr(one.store, "multi", noted)
    await one.dynamic_config.alter_user("a", lambda before: {"SCRAM-SHA-256": "salt=..."})
    assert multis == [["/config/users/a", znodes.CONFIG_CHANGE]]
    await store.close()


@in_loop
async def test_what_was_written_though_its_answer_was_lost_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    followed = [following(one), following(two)]
    for changes in followed:
        changes.start()
        await changes.caught_up()
    entity = QuotaEntity(user="a")
    multi = one.store.multi

    async def answer_lost(operations: Sequence[Operation]) -> list[Outcome]:
        await multi(operations)
        raise OutcomeUnknown("/")

    with monkeypatch.context() as patched:
        patched.setattr(one.store, "multi", answer_lost)
        with pytest.raises(KafkaError, match="could not be written"):
            await one.dynamic_config.alter_quotas(entity, lambda _: {"producer_byte_rate": "7"})
    await rounds()
    for broker in (one, two):
        assert dict(broker.dynamic_config.quota_limits.all()) == {
            entity: {"producer_byte_rate": 7.0}
        }
    for changes in followed:
        changes.close()
    await store.close()


async def _unreachable(*_: object, **__: object) -> list[str]:
    raise StoreUnavailable("/config/changes")
