"""Entities of quotas: where Kafka keeps them, and what it takes for a quota."""

from __future__ import annotations

from math import inf, nan

import pytest

from tidelog.broker.quotas.quota_entity import Alteration, QuotaEntity
from tidelog.errors import ErrorCode, KafkaError

NODES = {
    QuotaEntity(user="alice"): ("users", "alice"),
    QuotaEntity(user="CN=a b,O=*"): ("users", "CN%3Da%20b%2CO%3D%2A"),
    QuotaEntity(user=None): ("users", "<default>"),
    QuotaEntity(user="<default>"): ("users", "%3Cdefault%3E"),
    QuotaEntity(user="alice", client_id="app/1"): ("users", "alice/clients/app%2F1"),
    QuotaEntity(user="alice", client_id=None): ("users", "alice/clients/<default>"),
    QuotaEntity(user=None, client_id="app"): ("users", "<default>/clients/app"),
    QuotaEntity(user=None, client_id=None): ("users", "<default>/clients/<default>"),
    QuotaEntity(client_id="app"): ("clients", "app"),
    QuotaEntity(client_id=None): ("clients", "<default>"),
    QuotaEntity(ip="10.0.0.1"): ("ips", "10.0.0.1"),
    QuotaEntity(ip=None): ("ips", "<default>"),
}


@pytest.mark.parametrize("entity", NODES, ids=lambda entity: "/".join(NODES[entity]))
def test_an_entity_has_the_node_that_kafka_gives_it(entity: QuotaEntity) -> None:
    assert entity.node == NODES[entity]
    assert QuotaEntity.of_node(*NODES[entity]) == entity
    assert QuotaEntity.of(entity.parts) == entity


@pytest.mark.parametrize(
    ("entity_type", "path"),
    [("users", "alice/clients"), ("users", "a/b/c"), ("clients", "a/b"), ("ips", "a/b")],
)
def test_a_node_on_the_way_to_others_is_no_entity(entity_type: str, path: str) -> None:
    assert QuotaEntity.of_node(entity_type, path) is None


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([], "Invalid empty client quota entity"),
        ([("planet", "earth")], "Unhandled client quota entity type: planet"),
        ([("user", "a"), ("user", "b")], "duplicate entity entry user"),
        ([("client-id", "")], "Empty client-id not supported"),
        ([("user", "..")], "user must not be .."),
        ([("user", "a"), ("ip", None)], "IP entity should not be used with user/client ID entity"),
    ],
)
def test_an_entity_that_kafka_does_not_take_is_refused(
    parts: list[tuple[str, str | None]], complaint: str
) -> None:
    with pytest.raises(KafkaError, match=complaint) as refused:
        QuotaEntity.of(parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


USER, ADDRESS = QuotaEntity(user="alice"), QuotaEntity(ip="10.0.0.1")


@pytest.mark.parametrize(
    ("entity", "key", "value", "text"),
    [
        (USER, "producer_byte_rate", 1024.0, "1024"),
        (USER, "producer_byte_rate", float(2**63 - 1), str(2**63 - 1)),
        (USER, "consumer_byte_rate", 1.0000001, "1"),
        (USER, "request_percentage", 12.5, "12.5"),
        (USER, "controller_mutation_rate", 0.1, "0.1"),
        (USER, "controller_mutation_rate", None, None),
        (ADDRESS, "connection_creation_rate", 5.0, "5"),
    ],
)
def test_a_quota_is_stored_as_kafka_stores_it(
    entity: QuotaEntity, key: str, value: float | None, text: str | None
) -> None:
    assert Alteration(key, value).text(entity) == text


@pytest.mark.parametrize(
    ("entity", "key", "value", "complaint"),
    [
        (USER, "producer_byte_rate", 0.0, "must be greater than 0"),
        (USER, "request_percentage", -1.0, "must be greater than 0"),
        (USER, "request_percentage", nan, "must be greater than 0"),
        (USER, "request_percentage", inf, "must be greater than 0"),
        (USER, "consumer_byte_rate", 1.5, "cannot be a fractional value"),
        (USER, "consumer_byte_rate", 1e30, "too large for a LONG"),
        (ADDRESS, "connection_creation_rate", 2.0**31, "too large for an INT"),
        (ADDRESS, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (USER, "connection_creation_rate", 1.0, "Invalid configuration key"),
        (USER, "SCRAM-SHA-256", None, "Invalid configuration key SCRAM-SHA-256"),
    ],
)
def test_what_is_no_quota_is_refused(
    entity: QuotaEntity, key: str, value: float | None, complaint: str
) -> None:
    with pytest.raises(KafkaError, match=complaint) as refused:
        Alteration(key, value).text(entity)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
