"""Decisions by access control lists, against a model that loops over all of them."""

from __future__ import annotations

import random
from time import process_time
from timeit import repeat

import pytest

from tests.support.acl_model import (
    AclQuestion,
    AclWorld,
    model_authorize,
    model_authorize_by_type,
    random_question,
    random_world,
)
from tidelog.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tidelog.broker.security import authorizer as authorizer_module
from tidelog.broker.security.authorizer import Authorizer, canonical_host
from tidelog.network.session import Principal

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
DESCRIBE, ALTER = AclOperation.DESCRIBE, AclOperation.ALTER
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"


def of(world: AclWorld) -> Authorizer:
    authorizer = Authorizer(
        super_users=world.super_users, allow_everyone_if_no_acl_found=world.allow_everyone
    )
    put(authorizer, *world.bindings)
    return authorizer


def put(authorizer: Authorizer, *bindings: AclBinding) -> None:
    patterns: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for binding in bindings:
        patterns.setdefault(binding.pattern, set()).add(binding.entry)
    for pattern, entries in patterns.items():
        authorizer.put(pattern, frozenset(entries))


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    principal: str = "User:alice",
    host: str = "*",
    pattern_type: PatternType = LITERAL,
    resource_type: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, name, principal, operation, permission, host, pattern_type)


def asked(authorizer: Authorizer, question: AclQuestion) -> bool:
    kind, _, name = question.principal.partition(":")
    return authorizer.authorize(
        Principal(kind, name),
        question.host,
        question.operation,
        question.resource_type,
        question.name,
    )


def test_20_000_random_questions_are_answered_as_by_the_model() -> None:
    chance = random.Random(17)
    answers = {True: 0, False: 0}
    for _ in range(400):
        world = random_world(chance)
        authorizer = of(world)
        for _ in range(50):
            question = random_question(chance, world)
            answer = asked(authorizer, question)
            assert answer == model_authorize(world, question), (world, question)
            assert answer == asked(authorizer, question), "it is remembered"
            answers[answer] += 1
    assert min(answers.values()) > 4000


def test_5_000_random_questions_for_any_resource_are_answered_as_by_the_model() -> None:
    chance = random.Random(18)
    answers = {True: 0, False: 0}
    for _ in range(500):
        world = random_world(chance)
        authorizer = of(world)
        for _ in range(10):
            principal, host, operation, kind, _ = random_question(chance, world)
            user = Principal(*principal.split(":"))
            answer = authorizer.authorize_by_resource_type(user, host, operation, kind)
            expected = model_authorize_by_type(world, principal, host, operation, kind)
            assert answer == expected, (world, principal, host, operation, kind)
            answers[answer] += 1
    assert min(answers.values()) > 500


def test_lists_that_come_and_go_leave_nothing_behind() -> None:
    """Changes one after another end where the last lists alone would have begun."""
    chance = random.Random(19)
    authorizer = of(random_world(chance)._replace(super_users=frozenset(), allow_everyone=False))
    for _ in range(60):
        world = random_world(chance)._replace(super_users=frozenset(), allow_everyone=False)
        for pattern in tuple(authorizer.patterns()):
            authorizer.put(pattern, frozenset())
        put(authorizer, *world.bindings)
        assert sorted(
            AclBinding.of(pattern, entry)
            for pattern in authorizer.patterns()
            for entry in authorizer.entries(pattern)
        ) == list(world.bindings)
        for _ in range(20):
            question = random_question(chance, world)
            assert asked(authorizer, question) == model_authorize(world, question)
            principal, host, operation, kind, _ = question
            assert authorizer.authorize_by_resource_type(
                Principal(*principal.split(":")), host, operation, kind
            ) == model_authorize_by_type(world, principal, host, operation, kind)


def test_a_change_holds_for_what_was_decided_before() -> None:
    authorizer = Authorizer()
    put(authorizer, acl("orders"))
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")
    put(authorizer, acl("orders"), acl("orders", permission=DENY, principal="User:*"))
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")


def test_one_of_three_entries_that_goes_leaves_the_others() -> None:
    """CVE-2024-27309: in Kafka the others stopped to hold."""
    authorizer = Authorizer()
    bindings = [acl("orders", operation) for operation in (READ, WRITE, ALTER)]
    put(authorizer, *bindings)
    put(authorizer, *bindings[1:])
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")
    assert authorizer.authorize(ALICE, HOST, WRITE, TOPIC, "orders")
    assert authorizer.authorize(ALICE, HOST, ALTER, TOPIC, "orders")


@pytest.mark.parametrize("allow_everyone", [False, True])
def test_a_resource_has_acls_whoever_they_are_for(allow_everyone: bool) -> None:
    authorizer = Authorizer(allow_everyone_if_no_acl_found=allow_everyone)
    put(authorizer, acl("orders", principal="User:bob"), acl("p", pattern_type=PREFIXED))
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")
    assert not authorizer.authorize(BOB, HOST, READ, TOPIC, "pears")
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "other") == allow_everyone
    assert authorizer.authorize(ALICE, HOST, READ, GROUP, "orders") == allow_everyone
    authorizer.put(ResourcePattern(TOPIC, "orders", LITERAL), frozenset())
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders") == allow_everyone


def test_a_super_user_is_not_denied() -> None:
    authorizer = Authorizer(super_users=["User:alice"])
    put(authorizer, acl("*", ALL, DENY, "User:*"))
    assert authorizer.authorize(ALICE, HOST, WRITE, TOPIC, "orders")
    assert authorizer.authorize_by_resource_type(ALICE, HOST, WRITE, TOPIC)
    assert not authorizer.authorize(BOB, HOST, WRITE, TOPIC, "orders")
    assert not authorizer.authorize(Principal("Group", "alice"), HOST, WRITE, TOPIC, "orders")


def test_what_is_denied_implies_nothing() -> None:
    authorizer = Authorizer()
    put(authorizer, acl("orders", WRITE), acl("orders", READ, DENY))
    assert authorizer.authorize(ALICE, HOST, DESCRIBE, TOPIC, "orders")
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "orders")


@pytest.mark.parametrize(
    ("written", "client"),
    [
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::1", "2001:db8:0:0::1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
    ],
)
def test_an_address_is_one_host_however_it_is_written(written: str, client: str) -> None:
    authorizer = Authorizer(allow_everyone_if_no_acl_found=True)
    put(
        authorizer,
        acl("*", ALL, principal="User:*"),
        acl("*", ALL, DENY, principal="User:*", host=written),
    )
    assert not authorizer.authorize(ALICE, client, READ, TOPIC, "orders")
    assert not authorizer.authorize_by_resource_type(ALICE, client, READ, TOPIC)
    assert authorizer.authorize(ALICE, "192.0.2.1", READ, TOPIC, "orders")
    assert canonical_host("*") == "*"


def test_a_client_that_invents_names_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "DECISIONS_MAX", 100)
    authorizer = Authorizer()
    for number in range(1000):
        assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, f"made-up-{number}")
        assert len(authorizer._decisions) <= 100


def test_ten_thousand_acls_do_not_make_a_question_slower() -> None:
    """One that was not asked before: what is remembered is one look-up, however many there are."""

    def seconds(count: int) -> float:
        authorizer = Authorizer()
        put(
            authorizer,
            *(acl(f"topic-{number}", principal=f"User:u{number % 997}") for number in range(count)),
            *(acl(f"p-{number:05d}", pattern_type=PREFIXED) for number in range(count)),
        )
        questions = [f"p-{number:05d}-of-alice" for number in range(100)]

        def ask() -> None:
            authorizer._decisions.clear()
            for name in questions:
                authorizer.authorize(ALICE, HOST, READ, TOPIC, name)

        return min(repeat(ask, number=10, repeat=9, timer=process_time)) / 10 / len(questions)

    few, many = seconds(100), seconds(5000)
    # About 1 us more on a quiet machine; a look at thousands would take hundreds.
    assert many < 2 * few + 10e-6, (few, many)
