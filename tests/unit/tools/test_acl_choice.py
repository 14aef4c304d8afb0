"""Which ACLs a command line means."""

from __future__ import annotations

import pytest

from tidelog.acls import AclOperation, PatternType, ResourceType
from tidelog.tools.acl_choice import AclChoice, operation_of
from tidelog.tools.cli.main import main

ALICE = ("User:alice",)


def meant(choice: AclChoice) -> set[tuple[str, str, str]]:
    return {
        (each.resource_type.name, each.resource_name, each.operation.name)
        for each in choice.bindings()
    }


def test_a_producer_needs_what_kafkas_tool_gives_it() -> None:
    choice = AclChoice(
        topics=["t"],
        transactional_ids=["x"],
        producer=True,
        idempotent=True,
        allow_principals=ALICE,
    )
    assert meant(choice) == {
        ("TOPIC", "t", "WRITE"),
        ("TOPIC", "t", "DESCRIBE"),
        ("TOPIC", "t", "CREATE"),
        ("TRANSACTIONAL_ID", "x", "WRITE"),
        ("TRANSACTIONAL_ID", "x", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
    }


def test_a_consumer_needs_what_kafkas_tool_gives_it() -> None:
    choice = AclChoice(topics=["t"], groups=["g"], consumer=True, allow_principals=ALICE)
    assert meant(choice) == {
        ("TOPIC", "t", "READ"),
        ("TOPIC", "t", "DESCRIBE"),
        ("GROUP", "g", "READ"),
    }


def test_every_principal_has_every_operation_from_every_host() -> None:
    choice = AclChoice(
        topics=["a", "b"],
        operations=["read", "Write"],
        allow_principals=["User:x", "User:y"],
        allow_hosts=["h1", "h2"],
        deny_principals=["User:z"],
        pattern_type=PatternType.PREFIXED,
    )
    assert len(choice.bindings()) == 2 * 2 * (2 * 2 + 1)
    assert len(choice.filters()) == 2 * 2 * (2 * 2 + 1)


def test_without_principals_all_entries_of_the_resources_are_removed() -> None:
    (wanted,) = AclChoice(topics=["t"], pattern_type=PatternType.MATCH).filters()
    assert (wanted.resource_type, wanted.resource_name) == (ResourceType.TOPIC, "t")
    assert (wanted.principal, wanted.operation) == (None, AclOperation.ANY)


@pytest.mark.parametrize("text", ["IdempotentWrite", "idempotent_write", "IDEMPOTENT-WRITE"])
def test_an_operation_may_be_written_in_any_way(text: str) -> None:
    assert operation_of(text) is AclOperation.IDEMPOTENT_WRITE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("add --topic t", "--allow-principal"),
        ("add --allow-principal User:a", "at least one resource"),
        ("add --topic t --allow-principal a", "User:name"),
        ("add --topic t --allow-principal User:a --operation x", "x is not an operation"),
        ("add --group g --allow-principal User:a --operation Write", "GROUP only supports"),
        ("add --consumer --topic t --allow-principal User:a", "--group"),
        ("add --producer --group t --allow-principal User:a", "--topic"),
        ("add --producer --topic t --allow-principal User:a --operation Read", "--operation"),
        ("add --topic t --idempotent --allow-principal User:a", "--producer"),
        ("remove --producer --topic t --deny-principal User:a", "--deny-principal"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["acl", "--bootstrap-server", "127.0.0.1:1", *arguments.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
