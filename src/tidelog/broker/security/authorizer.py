"""Decisions by access control lists: Kafka's rules, with no I/O and no clock.

The rules
- A super user may do everything.
- A pattern holds for a resource of its type if it is literal and has the resource's name or `*`,
  or if it is prefixed and the resource's name begins with its own.
- An entry holds for a principal that it names, or all (`User:*`), from a host that it names, or
  all (`*`), and for an operation that it names, or all (ALL).
- One entry that holds and denies is enough to deny. Otherwise one that holds and allows is enough.
- Allowed READ, WRITE, DELETE or ALTER allow DESCRIBE; allowed ALTER_CONFIGS allows
  DESCRIBE_CONFIGS. What is denied implies nothing.
- Where no pattern with entries holds for a resource, whoever those entries are for,
  `allow.everyone.if.no.acl.found` decides.

How it is fast
The entries of a pattern become two sets of operations, allowed and denied, by principal and host:
four look-ups answer for a pattern. Literal patterns are found by name. Prefixed ones are found by
the beginnings of the name that are as long as some prefix. So the cost grows with the number of
different lengths of prefixes, and not with the number of entries. A decision is remembered until
the next change; a client that invents names cannot fill more than DECISIONS_MAX places.

Hosts are addresses, as in Kafka. An IPv6 address may be written in any of its forms here; Kafka
knows only the one without `::`, so that an entry with another form holds for nobody there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from tidelog.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tidelog.network.session import Principal

DECISIONS_MAX: Final = 100_000
HOSTS_REMEMBERED_MAX: Final = 10_000

NO_ENTRIES: Final[frozenset[AccessControlEntry]] = frozenset()
EVERY_OPERATION: Final = sum(1 << each for each in AclOperation if each > AclOperation.ALL)
IMPLIED: Final = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}

# Principal, host, operation, resource type, resource name.
Question = tuple[Principal, str, int, int, str]
# Resource type, pattern type, permission, operation, principal, host.
NamesKey = tuple[int, int, int, int, str, str]


@lru_cache(maxsize=HOSTS_REMEMBERED_MAX)
def canonical_host(host: str) -> str:
    """One text for each address: an IPv4 client of an IPv6 socket is an IPv4 client."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


class _Rules:
    """The entries of one pattern: bits of operations allowed and denied, by principal and host."""

    __slots__ = ("allowed", "denied", "entries")

    def __init__(self, entries: frozenset[AccessControlEntry]) -> None:
        self.entries = entries
        self.allowed: dict[tuple[str, str], int] = {}
        self.denied: dict[tuple[str, str], int] = {}
        for entry in entries:
            who = (entry.principal, canonical_host(entry.host))
            if entry.permission is AclPermission.ALLOW:
                self.allowed[who] = self.allowed.get(who, 0) | _allowed_bits(entry.operation)
            elif entry.permission is AclPermission.DENY:
                self.denied[who] = self.denied.get(who, 0) | _bits(entry.operation)


def _bits(operation: AclOperation) -> int:
    return EVERY_OPERATION if operation is AclOperation.ALL else 1 << operation


def _allowed_bits(operation: AclOperation) -> int:
    implied = IMPLIED.get(operation)
    return _bits(operation) | (0 if implied is None else 1 << implied)


class _Patterns:
    """All patterns of one resource type that have entries."""

    __slots__ = ("lengths", "literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.prefix_lengths: dict[int, int] = {}  # how many prefixes have this length
        self.lengths: list[int] = []  # the keys of that, in order

    def of_type(self, pattern_type: PatternType) -> dict[str, _Rules]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def put(self, pattern: ResourcePattern, rules: _Rules | None) -> None:
        some = self.of_type(pattern.pattern_type)
        is_there = pattern.name in some
        if rules is None:
            some.pop(pattern.name, None)
        else:
            some[pattern.name] = rules
        if some is self.prefixed and is_there != (rules is not None):
            self._count_prefix(len(pattern.name), -1 if is_there else 1)

    def _count_prefix(self, length: int, change: int) -> None:
        count = self.prefix_lengths.get(length, 0) + change
        if count:
            self.prefix_lengths[length] = count
        else:
            del self.prefix_lengths[length]
        self.lengths = sorted(self.prefix_lengths)

    def holding_for(self, name: str) -> list[_Rules]:
        found = [self.literal.get(WILDCARD), None if name == WILDCARD else self.literal.get(name)]
        for length in self.lengths:
            if length > len(name):
                break
            found.append(self.prefixed.get(name[:length]))
        return [rules for rules in found if rules is not None]


class Authorizer:
    """Touched only on the broker's loop."""

    def __init__(
        self,
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._patterns: dict[int, _Patterns] = {kind: _Patterns() for kind in ResourceType}
        self._names: dict[NamesKey, set[str]] = {}
        self._decisions: dict[Question, bool] = {}

    # The lists

    def put(self, pattern: ResourcePattern, entries: frozenset[AccessControlEntry]) -> bool:
        """These are all entries of the pattern from now on. Whether anything has changed."""
        before = self.entries(pattern)
        if entries == before:
            return False
        rules = _Rules(entries) if entries else None
        self._patterns[pattern.resource_type].put(pattern, rules)
        keys_before = {_names_key(pattern, entry) for entry in before}
        keys = {_names_key(pattern, entry) for entry in entries}
        for key in keys_before - keys:
            names = self._names[key]
            names.discard(pattern.name)
            if not names:
                del self._names[key]
        for key in keys - keys_before:
            self._names.setdefault(key, set()).add(pattern.name)
        self._decisions.clear()
        return True

    def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        some = self._patterns[pattern.resource_type].of_type(pattern.pattern_type)
        rules = some.get(pattern.name)
        return NO_ENTRIES if rules is None else rules.entries

    def patterns(self) -> Iterator[ResourcePattern]:
        """All with entries: by type, literal ones before prefixed ones, by name."""
        for kind in ResourceType:
            patterns = self._patterns[kind]
            for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
                for name in sorted(patterns.of_type(pattern_type)):
                    yield ResourcePattern(kind, name, pattern_type)

    # Decisions

    def authorize(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        question = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(question)
        if decision is None:
            decision = self._decide(principal, host, operation, resource_type, name)
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[question] = decision
        return decision

    def _decide(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        who = str(principal)
        if who in self._super_users:
            return True
        holding = self._patterns[resource_type].holding_for(name)
        if not holding:
            return self._allow_everyone
        bit = 1 << operation
        anybody = _anybody(who, canonical_host(host))
        for rules in holding:
            if any(rules.denied.get(each, 0) & bit for each in anybody):
                return False
        return any(rules.allowed.get(each, 0) & bit for rules in holding for each in anybody)

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether there may be a resource of the type on which the operation is allowed (KIP-679).

        As Kafka's AclAuthorizer has it: only the operation itself counts, and not what implies it.
        With `allow.everyone.if.no.acl.found` there may, unless all resources are denied.
        """
        who = str(principal)
        if who in self._super_users:
            return True
        question = (resource_type, operation, who, canonical_host(host))
        denied = self._named(*question, PatternType.LITERAL, AclPermission.DENY)
        if any(WILDCARD in names for names in denied):
            return False
        if self._allow_everyone:
            return True
        denied_prefixes = self._named(*question, PatternType.PREFIXED, AclPermission.DENY)

        def is_dominated(name: str) -> bool:
            return bool(denied_prefixes) and any(
                name[:length] in names
                for names in denied_prefixes
                for length in range(1, len(name) + 1)
            )

        for names in self._named(*question, PatternType.PREFIXED, AclPermission.ALLOW):
            if any(not is_dominated(name) for name in names):
                return True
        for names in self._named(*question, PatternType.LITERAL, AclPermission.ALLOW):
            for name in names:
                if name == WILDCARD or not (
                    any(name in others for others in denied) or is_dominated(name)
                ):
                    return True
        return False

    def _named(
        self,
        resource_type: int,
        operation: int,
        principal: str,
        host: str,
        pattern_type: PatternType,
        permission: AclPermission,
    ) -> list[set[str]]:
        """Names in patterns with an entry that holds for the question."""
        found = (
            self._names.get((resource_type, pattern_type, permission, each, *who))
            for each in (operation, AclOperation.ALL)
            for who in _anybody(principal, host)
        )
        return [names for names in found if names]


def _anybody(principal: str, host: str) -> tuple[tuple[str, str], ...]:
    return (
        (principal, host),
        (principal, WILDCARD),
        (WILDCARD_PRINCIPAL, host),
        (WILDCARD_PRINCIPAL, WILDCARD),
    )


def _names_key(pattern: ResourcePattern, entry: AccessControlEntry) -> NamesKey:
    return (
        pattern.resource_type,
        pattern.pattern_type,
        entry.permission,
        entry.operation,
        entry.principal,
        canonical_host(entry.host),
    )
