"""Tidelog's authorizer and its ACLs in ZooKeeper against Apache Kafka's own."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import ApacheKafka
from tests.interop.apache_kafka import TOOL_TIMEOUT_S, kafka_or_skip
from tests.support.acl_model import AclQuestion, AclWorld, random_question, random_world
from tests.support.broker_process import BrokerProcess
from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tests.support.zookeeper import ZooKeeperProcess, fresh_chroot, zookeeper_client
from tests.unit.broker.security.test_authorizer import asked, of
from tidelog.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.broker.security.acl_store import AclStore
from tidelog.broker.security.authorizer import Authorizer
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.network.session import Principal

PROGRAM = Path(__file__).parent / "java" / "Decisions.java"
WORLDS = 100
QUESTIONS = 10
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    return kafka_or_skip()


def lines_of_world(world: AclWorld) -> Iterator[str]:
    yield f"W\t{str(world.allow_everyone).lower()}"
    for each in world.bindings:
        yield "\t".join(
            (
                "A",
                each.resource_type.name,
                each.resource_name,
                each.pattern_type.name,
                each.principal,
                each.host,
                each.operation.name,
                each.permission.name,
            )
        )


def test_a_thousand_decisions_are_those_of_both_of_kafkas_authorizers(kafka: ApacheKafka) -> None:
    chance = random.Random(41)
    lines: list[str] = []
    cases: list[tuple[AclWorld, AclQuestion]] = []
    for _ in range(WORLDS):
        world = random_world(chance)._replace(super_users=frozenset())
        lines += lines_of_world(world)
        for _ in range(QUESTIONS):
            question = random_question(chance, world)
            who, host, operation, kind, name = question
            lines.append(f"Q\t{who}\t{host}\t{operation.name}\t{kind.name}\t{name}")
            lines.append(f"T\t{who}\t{host}\t{operation.name}\t{kind.name}")
            cases.append((world, question))
    java, *rest = kafka.java()
    done = subprocess.run(
        [java, "-Xmx256m", *rest, str(PROGRAM)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [line[2:] for line in done.stdout.splitlines() if line.startswith("= ")]
    assert len(answers) == 2 * len(cases)
    for (world, question), both, by_type in zip(cases, answers[::2], answers[1::2], strict=True):
        authorizer = of(world)
        ours = str(asked(authorizer, question)).lower()
        assert both == f"{ours} {ours}", (world, question)
        user = Principal(*question.principal.split(":"))
        found = authorizer.authorize_by_resource_type(
            user, question.host, question.operation, question.resource_type
        )
        assert by_type == str(found).lower(), (world, question)


def acls_tool(kafka: ApacheKafka, *arguments: str) -> str:
    done = subprocess.run(
        [*kafka.java(), "kafka.admin.AclCommand", *arguments],
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ALICE = ("--allow-principal", "User:alice")


def test_kafkas_own_tool_manages_the_acls_of_a_tidelog_broker(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        server = ("--bootstrap-server", broker.bootstrap)
        shorthand = ("--producer", "--consumer", "--topic", "orders", "--group", "readers")
        acls_tool(kafka, *server, "--add", *ALICE, *shorthand)
        prefixed = ("--resource-pattern-type", "prefixed", "--topic", "or")
        acls_tool(kafka, *server, "--add", *prefixed, "--deny-principal", "User:bob")
        match = ("--topic", "orders", "--resource-pattern-type", "match")
        shown = acls_tool(kafka, *server, "--list", *match)
        assert "(principal=User:bob, host=*, operation=ALL, permissionType=DENY)" in shown
        for operation in ("READ", "WRITE", "CREATE", "DESCRIBE"):
            assert f"User:alice, host=*, operation={operation}, permissionType=ALLOW" in shown
        acls_tool(kafka, *server, "--remove", "--force", *ALICE, *shorthand)
        acls_tool(kafka, *server, "--remove", "--force", *prefixed)
        assert acls_tool(kafka, *server, "--list").strip() == ""


def nodes_below(connect: str, path: str) -> dict[str, bytes]:
    with zookeeper_client(connect) as client:
        found: dict[str, bytes] = {}

        def walk(place: str) -> None:
            found[place] = client.get(place)[0] or b""
            for name in client.get_children(place):
                walk(f"{place}/{name}")

        walk(path)
        return found


ROOTS = ("/kafka-acl", "/kafka-acl-extended", "/kafka-acl-changes", "/kafka-acl-extended-changes")


def test_the_nodes_in_zookeeper_are_kafkas_to_the_byte(
    kafka: ApacheKafka, zookeeper: ZooKeeperProcess
) -> None:
    theirs, ours = (f"127.0.0.1:{zookeeper.port}{fresh_chroot('acls')}" for _ in range(2))
    stored = ("--authorizer-properties", f"zookeeper.connect={theirs}")
    for arguments in (
        ("--topic", "orders"),
        ("--topic", "o", "--resource-pattern-type", "prefixed", "--operation", "DescribeConfigs"),
        ("--transactional-id", "x:y", "--allow-host", "10.0.0.1"),
        ("--cluster", "--operation", "ClusterAction"),
    ):
        acls_tool(kafka, *stored, "--add", *ALICE, *arguments)

    @in_loop
    async def story() -> None:
        loop = asyncio.get_running_loop()
        store = ZooKeeperStore.connect(ours, session_timeout_ms=18000, loop=loop)
        clock = FakeClock()
        acls = AclStore(store, Authorizer(), clock=clock, timer=clock)
        acls.load()
        allow = AclPermission.ALLOW
        for binding in (
            AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.ALL),
            AclBinding(
                ResourceType.TOPIC,
                "o",
                "User:alice",
                AclOperation.DESCRIBE_CONFIGS,
                pattern_type=PatternType.PREFIXED,
            ),
            AclBinding(
                ResourceType.TRANSACTIONAL_ID,
                "x:y",
                "User:alice",
                AclOperation.ALL,
                allow,
                "10.0.0.1",
            ),
            AclBinding(
                ResourceType.CLUSTER, "kafka-cluster", "User:alice", AclOperation.CLUSTER_ACTION
            ),
        ):
            assert await acls.create([binding]) == {binding: None}
        await store.close()

    story()
    for root in ROOTS:
        assert nodes_below(ours, root) == nodes_below(theirs, root)


def test_each_reads_what_the_other_wrote(kafka: ApacheKafka, zookeeper: ZooKeeperProcess) -> None:
    shared = f"127.0.0.1:{zookeeper.port}{fresh_chroot('acls')}"
    stored = ("--authorizer-properties", f"zookeeper.connect={shared}")
    acls_tool(kafka, *stored, "--add", *ALICE, "--producer", "--topic", "orders")
    bob = AclBinding(
        ResourceType.GROUP, "g", "User:bob", AclOperation.READ, pattern_type=PatternType.PREFIXED
    )

    @in_loop
    async def story() -> None:
        loop = asyncio.get_running_loop()
        store = ZooKeeperStore.connect(shared, session_timeout_ms=18000, loop=loop)
        clock = FakeClock()
        acls = AclStore(store, Authorizer(), clock=clock, timer=clock)
        acls.load()
        found = [binding for some in acls.matching(AclBindingFilter()) for binding in some]
        assert {(each.principal, each.operation.name) for each in found} == {
            ("User:alice", "WRITE"),
            ("User:alice", "DESCRIBE"),
            ("User:alice", "CREATE"),
        }
        await acls.create([bob])
        orders = AclBindingFilter(ResourceType.TOPIC, "orders", operation=AclOperation.CREATE)
        await acls.delete([orders])
        # A change that Kafka makes while the broker runs is heard of.
        acls.watch()
        await acls.caught_up()
        remove = ("--remove", "--force", "--topic", "orders")
        await asyncio.to_thread(acls_tool, kafka, *stored, *remove)
        deadline = loop.time() + 30
        while [each.name for each in acls.authorizer.patterns()] != ["g"]:
            assert loop.time() < deadline
            await asyncio.sleep(0.05)
        acls.close()
        await store.close()

    story()
    shown = acls_tool(kafka, *stored, "--list")
    assert "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)" in shown
    assert "User:alice" not in shown
    (data,) = (
        value
        for path, value in nodes_below(shared, "/kafka-acl-extended").items()
        if path.endswith("/Group/g")
    )
    assert json.loads(data)["version"] == 1
