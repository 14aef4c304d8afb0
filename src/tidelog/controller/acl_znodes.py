"""Where Kafka 3.9 keeps access control lists in ZooKeeper, and what it writes there.

    /kafka-acl/TYPE/NAME                        the entries of a literal pattern:
                                                {"acls":[{...}],"version":1}
    /kafka-acl-extended/prefixed/TYPE/NAME      the entries of a prefixed pattern, likewise
    /kafka-acl-changes/acl_changes_N            TOPIC:NAME, a literal pattern that has changed
    /kafka-acl-extended-changes/acl_changes_N   {"version":1,"resourceType":"TOPIC","name":...,
                                                "patternType":"PREFIXED"}

TYPE is Topic, Group, Cluster, TransactionalId, DelegationToken or User. A pattern without entries
has no node. A type, an operation or a permission that is not known is UNKNOWN, as in Kafka: a newer
broker may have written it. A node that is not of the right shape is a ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, Final, TypeVar

from tidelog.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
CHANGES: Final = "/kafka-acl-changes"
EXTENDED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGE_PREFIX: Final = "acl_changes_"
VERSION: Final = 1

PATTERN_TYPES: Final = {PatternType.LITERAL: ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
RESOURCE_TYPES: Final = tuple(each for each in ResourceType if each > ResourceType.ANY)

Word = TypeVar("Word", bound=IntEnum)


def pascal_case(word: IntEnum) -> str:
    return word.name.title().replace("_", "")


def _of_word(kind: type[Word], text: str) -> Word:
    """In any case, with underscores or without: TransactionalId, TRANSACTIONAL_ID."""
    wanted = text.replace("_", "").upper()
    for word in kind:
        if word.name.replace("_", "") == wanted:
            return word
    return kind(0)


def persistent_paths() -> Iterator[str]:
    """What a broker with an authorizer expects to find, or makes, when it starts."""
    for root in PATTERN_TYPES.values():
        for resource_type in RESOURCE_TYPES:
            yield f"{root}/{pascal_case(resource_type)}"
    yield CHANGES
    yield EXTENDED_CHANGES


def path_of(pattern: ResourcePattern) -> str:
    root = PATTERN_TYPES[pattern.pattern_type]
    return f"{root}/{pascal_case(pattern.resource_type)}/{pattern.name}"


def pattern_of(path: str) -> ResourcePattern | None:
    """None for a path above those of patterns, or of a resource type that is not known."""
    for pattern_type, root in PATTERN_TYPES.items():
        kind, _, name = path.removeprefix(f"{root}/").partition("/")
        if path.startswith(f"{root}/") and name:
            resource_type = _of_word(ResourceType, kind)
            if resource_type in RESOURCE_TYPES:
                return ResourcePattern(resource_type, name, pattern_type)
    return None


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def encode_entries(entries: Iterable[AccessControlEntry]) -> bytes:
    rows = [
        {
            "principal": entry.principal,
            "permissionType": pascal_case(entry.permission),
            "host": entry.host,
            "operation": pascal_case(entry.operation),
        }
        for entry in sorted(entries)
    ]
    return _encode({"acls": rows, "version": VERSION})


def decode_entries(data: bytes) -> frozenset[AccessControlEntry]:
    if not data:
        return frozenset()
    value = _decode(data)
    if value.get("version") != VERSION:
        raise ValueError(f"access control lists of an unknown version: {data!r}")
    rows = value.get("acls")
    if not isinstance(rows, list):
        raise ValueError(f"not access control lists: {data!r}")
    return frozenset(_entry(row) for row in rows)


def _entry(row: Any) -> AccessControlEntry:
    try:
        texts = [row[field] for field in ("principal", "host", "operation", "permissionType")]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an access control entry: {row!r}") from error
    if not all(isinstance(text, str) for text in texts) or ":" not in texts[0]:
        raise ValueError(f"not an access control entry: {row!r}")
    principal, host, operation, permission = texts
    return AccessControlEntry(
        principal, host, _of_word(AclOperation, operation), _of_word(AclPermission, permission)
    )


def _decode(data: bytes) -> dict[str, Any]:
    value = json.loads(str(data, "utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {data!r}")
    return value


def change_path(pattern: ResourcePattern) -> str:
    """Where the change is announced; the store appends a number."""
    is_literal = pattern.pattern_type is PatternType.LITERAL
    return f"{CHANGES if is_literal else EXTENDED_CHANGES}/{CHANGE_PREFIX}"


def encode_change(pattern: ResourcePattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return _encode(
        {
            "version": VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(data: bytes, *, extended: bool) -> ResourcePattern:
    if not extended:
        kind, colon, name = str(data, "utf-8").partition(":")
        if not colon:
            raise ValueError(f"not a changed resource: {data!r}")
        return ResourcePattern(_of_word(ResourceType, kind), name, PatternType.LITERAL)
    value = _decode(data)
    if value.get("version", 0) > VERSION:
        raise ValueError(f"a change of an unknown version: {data!r}")
    try:
        return ResourcePattern(
            _of_word(ResourceType, value["resourceType"]),
            str(value["name"]),
            _of_word(PatternType, value["patternType"]),
        )
    except KeyError as error:
        raise ValueError(f"not a changed resource: {data!r}") from error
