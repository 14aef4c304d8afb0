"""Which ACLs a command line means: Kafka's flags, with its shorthands for producers and consumers.

    --producer    WRITE, DESCRIBE and CREATE on the topics, WRITE and DESCRIBE on transactional ids;
                  with --idempotent also IDEMPOTENT_WRITE on the cluster
    --consumer    READ and DESCRIBE on the topics, READ on the groups

A choice without principals means all entries of its resources, which can be removed but not added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from tidelog.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

ALL: Final = AclOperation.ALL
PRODUCER: Final = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER: Final = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}
# What makes sense for a resource, as Kafka has it.
SUPPORTED: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


class WrongChoice(Exception):
    """What the user has to change."""


def operation_of(text: str) -> AclOperation:
    """In any case, with underscores, hyphens or neither: IdempotentWrite, idempotent-write."""
    wanted = text.strip().replace("_", "").replace("-", "").upper()
    for operation in AclOperation:
        if operation > AclOperation.ANY and operation.name.replace("_", "") == wanted:
            return operation
    known = ", ".join(each.name for each in AclOperation if each > AclOperation.ANY)
    raise WrongChoice(f"{text} is not an operation; there are {known}")


class AclChoice(NamedTuple):
    """What was given on the command line."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    delegation_tokens: Sequence[str] = ()
    user_principals: Sequence[str] = ()
    cluster: bool = False
    pattern_type: PatternType = PatternType.LITERAL
    operations: Sequence[str] = ()
    allow_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def resources(self) -> Iterator[ResourcePattern]:
        """Patterns, or what a filter says in place of one."""
        named = (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
            (ResourceType.USER, self.user_principals),
        )
        for resource_type, names in named:
            for name in dict.fromkeys(name.strip() for name in names):
                yield ResourcePattern(resource_type, name, self.pattern_type)
        if self.cluster or self.idempotent:
            yield ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)

    def require_sense(self) -> None:
        """What Kafka's tool refuses when it adds or removes."""
        shorthand = "--producer" if self.producer else "--consumer" if self.consumer else ""
        if shorthand and (self.operations or self.deny_principals or self.deny_hosts):
            raise WrongChoice(
                f"{shorthand} says which operations are allowed; leave out --operation, "
                "--deny-principal and --deny-host"
            )
        if self.producer and not self.topics:
            raise WrongChoice("With --producer you must specify a --topic")
        if self.idempotent and not self.producer:
            raise WrongChoice("The --idempotent option is only available if --producer is set")
        if self.consumer and (
            not self.topics
            or not self.groups
            or (not self.producer and (self.cluster or self.transactional_ids))
        ):
            raise WrongChoice(
                "With --consumer you must specify a --topic and a --group and no --cluster or "
                "--transactional-id option should be specified."
            )
        for principal in (*self.allow_principals, *self.deny_principals):
            if ":" not in principal:
                raise WrongChoice(f"a principal has the form User:name, not {principal}")
        if not any(True for _ in self.resources()):
            raise WrongChoice(
                "You must provide at least one resource: --topic <topic> or --cluster or "
                "--group <group> or --delegation-token <Delegation Token ID>"
            )

    def entries(self) -> dict[ResourcePattern, set[AccessControlEntry]]:
        """By resource; none where no principal was given."""
        self.require_sense()
        given = tuple(map(operation_of, self.operations)) or (ALL,)
        found: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for resource in self.resources():
            operations: set[AclOperation] = set()
            if self.producer:
                operations.update(PRODUCER.get(resource.resource_type, ()))
            if self.consumer:
                operations.update(CONSUMER.get(resource.resource_type, ()))
            if self.idempotent and resource.resource_type is ResourceType.CLUSTER:
                operations.add(AclOperation.IDEMPOTENT_WRITE)
            if not self.producer and not self.consumer:
                operations.update(given)
                _require_supported(resource.resource_type, operations)
            if operations:
                found[resource] = set(self._of(operations))
        return found

    def _of(self, operations: Iterable[AclOperation]) -> Iterator[AccessControlEntry]:
        for permission, principals, hosts in (
            (AclPermission.ALLOW, self.allow_principals, self.allow_hosts),
            (AclPermission.DENY, self.deny_principals, self.deny_hosts),
        ):
            for principal, host, operation in product(principals, hosts or (WILDCARD,), operations):
                yield AccessControlEntry(principal.strip(), host.strip(), operation, permission)

    def bindings(self) -> list[AclBinding]:
        """To be added."""
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise WrongChoice(
                f"A '--resource-pattern-type' value of '{self.pattern_type.name}' is not valid "
                "when adding acls."
            )
        entries = self.entries()
        if not all(entries.values()):
            raise WrongChoice(
                "You must specify one of: --allow-principal, --deny-principal when trying to add "
                "ACLs."
            )
        return sorted(AclBinding.of(each, entry) for each in entries for entry in entries[each])

    def filters(self) -> list[AclBindingFilter]:
        """To be removed."""
        return [
            wanted
            for resource, entries in self.entries().items()
            for wanted in (
                [filter_of(resource, entry) for entry in sorted(entries)] or [filter_of(resource)]
            )
        ]


def filter_of(
    resource: ResourcePattern, entry: AccessControlEntry | None = None
) -> AclBindingFilter:
    resource_type, name, pattern_type = resource
    if entry is None:
        return AclBindingFilter(resource_type, name, pattern_type=pattern_type)
    return AclBindingFilter(
        resource_type,
        name,
        entry.principal,
        entry.operation,
        entry.permission,
        entry.host,
        pattern_type,
    )


def _require_supported(resource_type: ResourceType, operations: set[AclOperation]) -> None:
    supported = (*SUPPORTED[resource_type], ALL)
    if not operations <= set(supported):
        names = ", ".join(each.name.title().replace("_", "") for each in supported)
        raise WrongChoice(f"ResourceType {resource_type.name} only supports operations {names}")
