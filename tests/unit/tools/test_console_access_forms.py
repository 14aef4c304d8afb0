"""What forms about ACLs and quotas stand for."""

from __future__ import annotations

import json

import pytest

from tidelog.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.client.admin.quotas import QuotaEntity
from tidelog.tools.acl_choice import WrongChoice
from tidelog.tools.console.pages import acls, quotas

TOPIC = {"resource": ["TOPIC"], "name": ["orders"], "principal": ["User:alice"]}


def test_a_form_stands_for_an_acl_of_each_operation() -> None:
    found = acls.bindings_of({**TOPIC, "operation": ["READ", "DESCRIBE"], "host": ["10.0.0.1"]})
    assert found == [
        AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ, host="10.0.0.1"),
        AclBinding(
            ResourceType.TOPIC, "orders", "User:alice", AclOperation.DESCRIBE, host="10.0.0.1"
        ),
    ]


def test_a_form_denies_and_takes_prefixes() -> None:
    (found,) = acls.bindings_of({**TOPIC, "permission": ["DENY"], "pattern": ["PREFIXED"]})
    assert found == AclBinding(
        ResourceType.TOPIC,
        "orders",
        "User:alice",
        AclOperation.ALL,
        AclPermission.DENY,
        pattern_type=PatternType.PREFIXED,
    )


def test_the_cluster_needs_no_name() -> None:
    (found,) = acls.bindings_of({**TOPIC, "resource": ["CLUSTER"], "name": [""]})
    assert (found.resource_type, found.resource_name) == (ResourceType.CLUSTER, "kafka-cluster")


def test_what_a_producer_and_a_consumer_need() -> None:
    form = {"principal": ["User:p"], "needs": ["producer", "idempotent"], "topic": ["t"]}
    kinds = {(each.resource_type, each.operation) for each in acls.bindings_of(form)}
    assert (ResourceType.TOPIC, AclOperation.WRITE) in kinds
    assert (ResourceType.CLUSTER, AclOperation.IDEMPOTENT_WRITE) in kinds
    form = {"principal": ["User:c"], "needs": ["consumer"], "topic": ["t"], "group": ["g"]}
    kinds = {(each.resource_type, each.operation) for each in acls.bindings_of(form)}
    assert kinds == {
        (ResourceType.TOPIC, AclOperation.READ),
        (ResourceType.TOPIC, AclOperation.DESCRIBE),
        (ResourceType.GROUP, AclOperation.READ),
    }


@pytest.mark.parametrize(
    "form",
    [
        {},
        {**TOPIC, "principal": ["alice"]},
        {**TOPIC, "resource": ["HOUSE"]},
        {**TOPIC, "name": [" "]},
        {**TOPIC, "operation": ["FLY"]},
        {**TOPIC, "operation": ["IDEMPOTENT_WRITE"]},
        {**TOPIC, "pattern": ["ANY"]},
        {"principal": ["User:c"], "needs": ["consumer"], "topic": ["t"]},
        {"principal": ["User:c"], "needs": ["magic"]},
    ],
)
def test_a_form_that_makes_no_sense_is_refused(form: acls.Form) -> None:
    with pytest.raises(WrongChoice):
        acls.bindings_of(form)


def test_an_acl_comes_back_from_its_name_in_a_form() -> None:
    binding = AclBinding(
        ResourceType.GROUP, 'g"],["', "User:ü", AclOperation.READ, AclPermission.DENY, "*"
    )
    assert acls.binding_of(acls.name_of(binding)) == binding


@pytest.mark.parametrize(
    "changes",
    [
        {0: "ANY"},
        {0: "NOPE"},
        {1: None},
        {1: 7},
        {2: ""},
        {3: "ANY"},
        {4: "ANY"},
        {5: None},
        {6: "MATCH"},
        {6: "ANY"},
    ],
)
def test_a_name_that_would_match_more_than_one_acl_is_refused(changes: dict[int, object]) -> None:
    row = ["TOPIC", "t", "User:a", "READ", "ALLOW", "*", "LITERAL"]
    assert acls.binding_of(json.dumps(row))
    text = json.dumps([changes.get(index, each) for index, each in enumerate(row)])
    with pytest.raises(WrongChoice):
        acls.binding_of(text)


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1,2]", "[" * 5_000, "null", "7"])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(WrongChoice):
        acls.binding_of(text)
    with pytest.raises(quotas.WrongQuota):
        quotas.named_entity(text)


def test_an_entity_has_names_and_defaults() -> None:
    found = quotas.entity_of({"user": "alice", "client-id": "", "ip": ""}, frozenset({"client-id"}))
    assert found == QuotaEntity.of({"user": "alice", "client-id": None})
    assert quotas.named_entity(quotas.name_of(found)) == found


@pytest.mark.parametrize(
    ("names", "defaults"),
    [
        ({}, frozenset()),
        ({"user": "a"}, frozenset({"user"})),
        ({"user": "a", "ip": "10.0.0.1"}, frozenset()),
    ],
)
def test_an_entity_that_cannot_be_is_refused(
    names: dict[str, str], defaults: frozenset[str]
) -> None:
    with pytest.raises(quotas.WrongQuota):
        quotas.entity_of(names, defaults)


def test_values_that_are_given_are_set() -> None:
    user = QuotaEntity.of({"user": "alice"})
    texts = {"producer_byte_rate": "1e6", "consumer_byte_rate": ""}
    assert quotas.values_of(user, texts) == {"producer_byte_rate": 1e6}


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"producer_byte_rate": ""},
        {"producer_byte_rate": "much"},
        {"producer_byte_rate": "nan"},
        {"producer_byte_rate": "inf"},
        {"producer_byte_rate": "0"},
        {"producer_byte_rate": "-1"},
        {"connection_creation_rate": "10"},
    ],
)
def test_values_that_cannot_be_are_refused(texts: dict[str, str]) -> None:
    with pytest.raises(quotas.WrongQuota):
        quotas.values_of(QuotaEntity.of({"user": "alice"}), texts)
