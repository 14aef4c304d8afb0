"""AlterClientQuotas and DescribeClientQuotas, as Kafka 3.9 answers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_broker import ConfigBroker, ConfigClusterBroker, found_cluster
from tests.support.metadata import in_loop
from tidelog.broker.handlers import alter_client_quotas, describe_client_quotas
from tidelog.controller import znodes
from tidelog.controller.metadata_store import NoNode
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from tidelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tidelog.sasl.scram_credential import ScramMechanism

Entity = dict[str, str | None]
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
SCRAM = {"SCRAM-SHA-256": "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"}


def entry(entity: Entity, **quotas: float | None) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )


async def alter(
    broker: ConfigBroker | ConfigClusterBroker,
    *entries: AlterClientQuotasRequestEntryData,
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = await alter_client_quotas.handle(broker.context(1), request)
    response.encode(1)
    return [(row.error_code, row.error_message) for row in response.entries]


def describe(
    broker: ConfigBroker | ConfigClusterBroker,
    *components: tuple[str, int, str | None],
    strict: bool = False,
) -> list[tuple[Entity, dict[str, float]]]:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    response = describe_client_quotas.handle(broker.context(1), request)
    response.encode(1)
    assert response.error_code == 0, response.error_message
    assert response.entries is not None
    return [
        (
            {part.entity_type: part.entity_name for part in row.entity},
            {value.key: value.value for value in row.values},
        )
        for row in response.entries
    ]


async def stored(broker: ConfigBroker | ConfigClusterBroker, path: str) -> dict[str, str] | None:
    try:
        data, _ = await broker.store.get(path)
    except NoNode:
        return None
    return znodes.decode_config(data)


@in_loop
async def test_quotas_are_stored_as_kafka_stores_them_and_outlive_a_restart(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    wanted: list[tuple[Entity, dict[str, float | None]]] = [
        ({"user": "CN=a"}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        ({"client-id": None}, {"consumer_byte_rate": 5.0}),
        ({"user": None, "client-id": "app"}, {"controller_mutation_rate": 0.5}),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 7.0}),
    ]
    answer = await alter(broker, *(entry(entity, **quotas) for entity, quotas in wanted))
    assert answer == [(0, None)] * 4
    assert await stored(broker, "/config/users/CN%3Da") == {
        "producer_byte_rate": "1024",
        "request_percentage": "12.5",
    }
    assert await stored(broker, "/config/clients/<default>") == {"consumer_byte_rate": "5"}
    assert await stored(broker, "/config/users/<default>/clients/app") == {
        "controller_mutation_rate": "0.5"
    }
    assert await stored(broker, "/config/ips/127.0.0.1") == {"connection_creation_rate": "7"}
    assert describe(broker) == wanted
    await broker.close()

    broker = ConfigBroker(tmp_path)
    assert sorted(describe(broker), key=str) == sorted(wanted, key=str)
    assert broker.dynamic_config.quota_limits.binds_clients
    await broker.close()


@in_loop
async def test_a_change_leaves_other_quotas_as_they_are(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    alice: Entity = {"user": "alice"}
    await alter(broker, entry(alice, producer_byte_rate=1.0, consumer_byte_rate=2.0))
    await alter(broker, entry(alice, producer_byte_rate=3.0, request_percentage=None))
    assert describe(broker) == [(alice, {"producer_byte_rate": 3.0, "consumer_byte_rate": 2.0})]
    await alter(broker, entry(alice, producer_byte_rate=None))
    assert describe(broker) == [(alice, {"consumer_byte_rate": 2.0})]
    await broker.close()


@in_loop
async def test_nodes_that_nothing_is_left_of_are_removed(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    alice: Entity = {"user": "alice"}
    pair: Entity = {"user": "alice", "client-id": "app"}
    await alter(broker, entry(alice, producer_byte_rate=1.0), entry(pair, producer_byte_rate=1.0))
    await alter(broker, entry(alice, producer_byte_rate=None))
    assert await stored(broker, "/config/users/alice") == {}
    assert describe(broker) == [(pair, {"producer_byte_rate": 1.0})]
    await alter(broker, entry(pair, producer_byte_rate=None))
    assert await broker.store.children("/config/users") == []
    assert describe(broker) == []
    await alter(broker, entry({"client-id": "app"}, producer_byte_rate=1.0))
    await alter(broker, entry({"client-id": "app"}, producer_byte_rate=None))
    assert await stored(broker, "/config/clients/app") is None
    await broker.close()


@in_loop
async def test_quotas_and_credentials_of_a_user_leave_each_other_alone(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    dynamic = broker.dynamic_config
    alice = entry({"user": "alice"}, producer_byte_rate=1.0)
    pair: Entity = {"user": "alice", "client-id": "a"}
    await dynamic.alter_user("alice", lambda texts: {**texts, **SCRAM})
    await alter(broker, alice, entry(pair, producer_byte_rate=1.0))
    sha_256 = ScramMechanism.SCRAM_SHA_256
    assert await stored(broker, "/config/users/alice") == {**SCRAM, "producer_byte_rate": "1"}
    assert dynamic.scram_credential_or_none(sha_256, "alice") is not None
    await dynamic.alter_user("alice", lambda texts: dict(texts.items() - SCRAM.items()))
    assert len(describe(broker)) == 2
    await dynamic.alter_user("alice", lambda texts: {**texts, **SCRAM})

    refused = await alter(broker, entry({"user": "alice"}, **{"SCRAM-SHA-256": None}))
    assert refused == [(ErrorCode.INVALID_REQUEST, "Invalid configuration key SCRAM-SHA-256")]
    await alter(broker, entry({"user": "alice"}, producer_byte_rate=None))
    await alter(broker, entry(pair, producer_byte_rate=None))
    assert await stored(broker, "/config/users/alice") == SCRAM
    assert dynamic.scram_credential_or_none(sha_256, "alice") is not None
    await broker.close()


@in_loop
async def test_a_bad_entity_fails_alone_and_changes_nothing(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    answer = await alter(
        broker,
        entry({"user": "a"}, producer_byte_rate=1.0),
        entry({"user": "b"}, producer_byte_rate=1.0, consumer_byte_rate=0.5),
        entry({"ip": "no such host"}, connection_creation_rate=1.0),
        entry({"user": "c"}, producer_byte_rate=1.0),
        entry({"user": "c"}, producer_byte_rate=2.0),
    )
    assert [code for code, _ in answer] == [0, 42, 42, 42]
    assert answer[1][1] == "consumer_byte_rate cannot be a fractional value."
    assert answer[2][1] == "no such host is not a valid IP or resolvable host."
    twice = entry({"user": "d"}, producer_byte_rate=1.0)
    twice.ops += twice.ops
    assert await alter(broker, twice) == [(42, "Duplicate quota key producer_byte_rate")]
    assert [entity for entity, _ in describe(broker)] == [{"user": "a"}]
    await broker.close()


@in_loop
async def test_validating_changes_nothing(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    good, bad = entry({"user": "a"}, producer_byte_rate=1.0), entry({"user": "b"}, nonsense=1.0)
    assert await alter(broker, good, bad, validate_only=True) == [
        (0, None),
        (42, "Invalid configuration key nonsense"),
    ]
    assert describe(broker) == []
    assert await stored(broker, "/config/users/a") is None
    await broker.close()


ENTITIES: list[Entity] = [
    {"user": "a"},
    {"user": None},
    {"user": "a", "client-id": "x"},
    {"user": "a", "client-id": None},
    {"user": None, "client-id": "x"},
    {"client-id": "x"},
    {"client-id": None},
    {"ip": "127.0.0.1"},
    {"ip": None},
]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ([], True, []),
        ([("user", EXACT, "a")], False, [0, 2, 3]),
        ([("user", EXACT, "a")], True, [0]),
        ([("user", DEFAULT, None)], False, [1, 4]),
        ([("user", SPECIFIED, None)], False, [0, 1, 2, 3, 4]),
        ([("user", SPECIFIED, None)], True, [0, 1]),
        ([("client-id", EXACT, "x")], False, [2, 4, 5]),
        ([("client-id", DEFAULT, None)], True, [6]),
        ([("user", EXACT, "a"), ("client-id", SPECIFIED, None)], True, [2, 3]),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "x")], False, [2, 4]),
        ([("ip", SPECIFIED, None)], True, [7, 8]),
        ([("ip", EXACT, "127.0.0.1")], False, [7]),
        ([("ip", DEFAULT, None)], False, [8]),
        ([("user", EXACT, "nobody")], False, []),
    ],
)
def test_a_filter_lets_through_what_kafka_lets_through(
    tmp_path: Path,
    components: list[tuple[str, int, str | None]],
    strict: bool,
    found: list[int],
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        for entity in ENTITIES:
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            assert await alter(broker, entry(entity, **{key: 1.0})) == [(0, None)]
        described = [entity for entity, _ in describe(broker, *components, strict=strict)]
        assert described == [ENTITIES[index] for index in found]
        await broker.close()

    story()


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
        ([("", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", SPECIFIED, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_is_none_is_refused(
    tmp_path: Path, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    @in_loop
    async def story() -> None:
        broker = ConfigBroker(tmp_path)
        request = DescribeClientQuotasRequest(
            components=[
                ComponentData(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in components
            ]
        )
        response = describe_client_quotas.handle(broker.context(1), request)
        response.encode(0)
        assert (response.error_code, response.entries) == (code, None)
        assert response.error_message
        await broker.close()

    story()


@in_loop
async def test_another_broker_takes_over_what_is_announced(tmp_path: Path) -> None:
    store = found_cluster(tmp_path)
    one, two = ConfigClusterBroker(store, 1), ConfigClusterBroker(store, 2)
    told: list[int] = []
    two.dynamic_config.on_ip_quota_change(lambda: told.append(1))
    for entity in ENTITIES:
        key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
        await alter(one, entry(entity, **{key: 1.0}))
    names = sorted(await store.children("/config/changes"))
    assert len(names) == len(ENTITIES)
    for name in names:
        data, _ = await store.get(f"/config/changes/{name}")
        entity_type, _, path = znodes.decode_config_change(data).partition("/")
        await two.dynamic_config.client_announced(entity_type, path)
    assert describe(two) == describe(one)
    assert told == [1, 1]
    await alter(one, entry({"user": "a", "client-id": "x"}, producer_byte_rate=None))
    await two.dynamic_config.client_announced("users", "a/clients/x")
    assert describe(two) == describe(one)
    await store.close()
