"""Access control lists as Kafka 3.9 writes them to ZooKeeper."""

from __future__ import annotations

import pytest

from tidelog.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tidelog.controller import acl_znodes

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
PREFIXED = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b", PatternType.PREFIXED)
ENTRIES = frozenset(
    {
        AccessControlEntry("User:alice", "*", AclOperation.IDEMPOTENT_WRITE, ALLOW),
        AccessControlEntry("User:bob", "10.0.0.1", AclOperation.ALL, DENY),
    }
)
# As the interop tests find them in the ZooKeeper of a Kafka 3.9.
STORED = (
    b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*",'
    b'"operation":"IdempotentWrite"},{"principal":"User:bob","permissionType":"Deny",'
    b'"host":"10.0.0.1","operation":"All"}],"version":1}'
)


def test_entries_are_written_as_kafka_writes_them() -> None:
    assert acl_znodes.encode_entries(ENTRIES) == STORED
    assert acl_znodes.decode_entries(STORED) == ENTRIES


def test_entries_of_older_kafkas_are_read() -> None:
    older = b'{"version": 1, "acls": [{"host": "h", "permissionType": "ALLOW", '
    older += b'"operation": "describeConfigs", "principal": "User:a"}]}'
    assert acl_znodes.decode_entries(older) == {
        AccessControlEntry("User:a", "h", AclOperation.DESCRIBE_CONFIGS, ALLOW)
    }
    assert acl_znodes.decode_entries(b"") == frozenset()


def test_words_of_a_newer_kafka_are_unknown() -> None:
    newer = STORED.replace(b"IdempotentWrite", b"Levitate").replace(b"Deny", b"Ponder")
    assert {(entry.operation, entry.permission) for entry in acl_znodes.decode_entries(newer)} == {
        (AclOperation.UNKNOWN, ALLOW),
        (AclOperation.ALL, AclPermission.UNKNOWN),
    }


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"no json",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{"principal":"User:a"}]}',
        b'{"version":1,"acls":["User:a"]}',
        STORED.replace(b"User:bob", b"bob"),
        STORED.replace(b'"10.0.0.1"', b"7"),
        b"\xff",
    ],
)
def test_what_is_no_list_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        acl_znodes.decode_entries(data)


def test_a_pattern_has_kafkas_path() -> None:
    assert acl_znodes.path_of(LITERAL) == "/kafka-acl/Topic/orders"
    assert acl_znodes.path_of(PREFIXED) == "/kafka-acl-extended/prefixed/TransactionalId/a:b"
    for pattern in (LITERAL, PREFIXED):
        assert acl_znodes.pattern_of(acl_znodes.path_of(pattern)) == pattern
    for path in ("/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Planet/earth", "/other/Topic/a"):
        assert acl_znodes.pattern_of(path) is None


def test_a_change_is_announced_as_kafka_does() -> None:
    assert acl_znodes.change_path(LITERAL) == "/kafka-acl-changes/acl_changes_"
    assert acl_znodes.encode_change(LITERAL) == b"TOPIC:orders"
    assert acl_znodes.change_path(PREFIXED) == "/kafka-acl-extended-changes/acl_changes_"
    assert acl_znodes.encode_change(PREFIXED) == (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"a:b","patternType":"PREFIXED"}'
    )
    for pattern, extended in ((LITERAL, False), (PREFIXED, True)):
        data = acl_znodes.encode_change(pattern)
        assert acl_znodes.decode_change(data, extended=extended) == pattern
    for data, extended in (
        (b"orders", False),
        (b"{}", True),
        (b"7", True),
        (b'{"version":2}', True),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            acl_znodes.decode_change(data, extended=extended)


def test_the_paths_that_a_broker_makes_are_kafkas() -> None:
    assert {
        "/kafka-acl/Topic",
        "/kafka-acl/DelegationToken",
        "/kafka-acl-extended/prefixed/User",
        "/kafka-acl-changes",
        "/kafka-acl-extended-changes",
    } <= set(acl_znodes.persistent_paths())
