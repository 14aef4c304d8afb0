"""An independent model of Kafka's authorisation: a loop over all bindings, written from its rules.

And random worlds of bindings and questions: few names that begin with each other, few principals
and hosts, so that most questions meet several bindings.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog.acls import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL and each <= 14]
TYPES = [each for each in ResourceType if each > ResourceType.ANY]
NAMES = ("a", "ab", "abc", "abcd", "abd", "b", "ba", "bab", "*", "ä", "äb")
PREFIXES = ("a", "ab", "abc", "b", "ba", "*", "ä")
USERS = ("alice", "bob", "carol", "*")
HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


class AclQuestion(NamedTuple):
    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str


class AclWorld(NamedTuple):
    bindings: tuple[AclBinding, ...]
    super_users: frozenset[str]
    allow_everyone: bool


def random_world(chance: random.Random) -> AclWorld:
    types = chance.sample(TYPES, 2)
    bindings = {_binding(chance, types) for _ in range(chance.choice((0, 1, 2, 3, 5, 8, 20, 60)))}
    return AclWorld(
        tuple(sorted(bindings)),
        frozenset({"User:carol"} if chance.random() < 0.1 else ()),
        chance.random() < 0.3,
    )


def _binding(chance: random.Random, types: Collection[ResourceType]) -> AclBinding:
    pattern_type = chance.choice((LITERAL, LITERAL, PREFIXED))
    return AclBinding(
        chance.choice(tuple(types)),
        chance.choice(PREFIXES if pattern_type is PREFIXED else NAMES),
        f"{chance.choice(('User', 'User', 'User', 'Group'))}:{chance.choice(USERS)}",
        chance.choice([AclOperation.ALL, *OPERATIONS]),
        ALLOW if chance.random() < 0.75 else DENY,
        chance.choice(("*", "*", *HOSTS[:2])),
        pattern_type,
    )


def random_question(chance: random.Random, world: AclWorld) -> AclQuestion:
    types = sorted({binding.resource_type for binding in world.bindings}) or TYPES
    return AclQuestion(
        f"{chance.choice(('User', 'User', 'User', 'Group'))}:{chance.choice(USERS[:3])}",
        chance.choice(HOSTS),
        chance.choice(OPERATIONS),
        chance.choice(types),
        chance.choice(NAMES),
    )


def _holds_for_resource(binding: AclBinding, question: AclQuestion) -> bool:
    if binding.resource_type is not question.resource_type:
        return False
    if binding.pattern_type is PREFIXED:
        return question.name.startswith(binding.resource_name)
    return binding.resource_name in ("*", question.name)


def _holds_for_client(binding: AclBinding, principal: str, host: str) -> bool:
    return binding.principal in ("User:*", principal) and binding.host in ("*", host)


def _allows(binding: AclBinding, operation: AclOperation) -> bool:
    enough = {operation, AclOperation.ALL}
    if operation is AclOperation.DESCRIBE:
        enough |= {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        enough |= {AclOperation.ALTER_CONFIGS}
    return binding.permission is ALLOW and binding.operation in enough


def model_authorize(world: AclWorld, question: AclQuestion) -> bool:
    if question.principal in world.super_users:
        return True
    holding = [each for each in world.bindings if _holds_for_resource(each, question)]
    if not holding:
        return world.allow_everyone
    own = [each for each in holding if _holds_for_client(each, question.principal, question.host)]
    both = (question.operation, AclOperation.ALL)
    if any(each.permission is DENY and each.operation in both for each in own):
        return False
    return any(_allows(each, question.operation) for each in own)


def model_authorize_by_type(
    world: AclWorld,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
) -> bool:
    if principal in world.super_users:
        return True
    own = [
        each
        for each in world.bindings
        if each.resource_type is resource_type
        and _holds_for_client(each, principal, host)
        and each.operation in (operation, AclOperation.ALL)
    ]
    denied = [each for each in own if each.permission is DENY]
    if any(each.resource_name == "*" and each.pattern_type is LITERAL for each in denied):
        return False
    if world.allow_everyone:
        return True
    return any(not _is_dominated(each, denied) for each in own if each.permission is ALLOW)


def _is_dominated(allowed: AclBinding, denied: Iterable[AclBinding]) -> bool:
    """Whether all that is allowed is denied too."""
    is_literal = allowed.pattern_type is LITERAL
    if is_literal and allowed.resource_name == "*":
        return False
    return any(
        allowed.resource_name.startswith(each.resource_name)
        if each.pattern_type is PREFIXED
        else is_literal and each.resource_name == allowed.resource_name
        for each in denied
    )
