"""Access control lists: who may do what with which resource (KIP-11, KIP-290).

A binding is a resource pattern and an entry: a principal, a host, an operation, and whether it is
allowed or denied. A literal pattern names one resource, or all of its type if the name is `*`; a
prefixed one names all whose name begins with its own. Enumerations have Kafka's codes, and a code
that is not known is UNKNOWN.

The broker and the client share these words. Who decides by them is `broker.security.authorizer`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"  # the one resource of type CLUSTER


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN


class AclPermission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> AclPermission:
        return cls.UNKNOWN


class ResourcePattern(NamedTuple):
    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        return f"{self.resource_type.name}:{self.pattern_type.name}:{self.name}"


class AccessControlEntry(NamedTuple):
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class AclBinding(NamedTuple):
    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = WILDCARD
    pattern_type: PatternType = PatternType.LITERAL

    @classmethod
    def of(cls, pattern: ResourcePattern, entry: AccessControlEntry) -> AclBinding:
        return cls(
            pattern.resource_type,
            pattern.name,
            entry.principal,
            entry.operation,
            entry.permission,
            entry.host,
            pattern.pattern_type,
        )

    @property
    def pattern(self) -> ResourcePattern:
        return ResourcePattern(self.resource_type, self.resource_name, self.pattern_type)

    @property
    def entry(self) -> AccessControlEntry:
        return AccessControlEntry(self.principal, self.host, self.operation, self.permission)

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} from {self.host} to {self.operation.name} "
            f"{self.pattern_type.name} {self.resource_type.name} {self.resource_name}"
        )


class AclBindingFilter(NamedTuple):
    """Matches bindings; ANY and None match everything.

    The pattern type MATCH stands for all patterns that hold for the resource that is named.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        kind = self.pattern_type
        if kind not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if kind is not PatternType.MATCH:
            return name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return name.startswith(pattern.name)
        return pattern.name in (name, WILDCARD)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )
