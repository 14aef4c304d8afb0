"""A broker with an authorizer, over the wire: on PLAINTEXT everybody is User:ANONYMOUS."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import Producer as LibrdkafkaProducer

from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.console import Console
from tests.support.eventually import eventually
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, create_topic, fetch, produce
from tidelog.acls import AclBinding, AclBindingFilter, AclOperation, AclPermission, ResourceType
from tidelog.client import Admin
from tidelog.client.errors import ClientError
from tidelog.errors import ErrorCode
from tidelog.tools.cli.main import main

ANONYMOUS = "User:ANONYMOUS"
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
# Nobody is kept out before there are ACLs, so that these tests can make some.
OPEN = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
WITHIN_S = 60.0


@pytest.fixture
def guarded(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(OPEN)


@pytest.fixture
def raw(guarded: BrokerProcess) -> Iterator[RawClient]:
    client = RawClient(guarded.bootstrap)
    yield client
    client.close()


def test_a_denied_topic_is_out_of_reach_and_the_log_says_so(
    guarded: BrokerProcess, raw: RawClient
) -> None:
    create_topic(raw, "secret")
    create_topic(raw, "plain")
    assert produce(raw, "secret", batch(b"v")).error_code == 0
    denial = AclBinding(
        ResourceType.TOPIC, "secret", ANONYMOUS, AclOperation.ALL, AclPermission.DENY
    )
    with Admin({"bootstrap.servers": guarded.bootstrap}) as admin:
        assert [each.error for each in admin.create_acls([denial]).values()] == [None]
        assert produce(raw, "secret", batch(b"v")).error_code == 29
        assert fetch(raw, "secret").error_code == 29
        assert [topic.name for topic in admin.list_topics()] == ["plain"]
        assert produce(raw, "plain", batch(b"v")).error_code == 0
        assert "msg=denied" in guarded.log_text()
        assert "resource=TOPIC:secret" in guarded.log_text()
        guarded.restart()
    with Admin({"bootstrap.servers": guarded.bootstrap}) as admin:
        again = RawClient(guarded.bootstrap)
        assert fetch(again, "secret").error_code == 29
        assert admin.describe_acls() == [denial]
        assert admin.delete_acls([AclBindingFilter()])[AclBindingFilter()].get() == [denial]
        assert fetch(again, "secret").error_code == 0
        again.close()


def test_foreign_clients_are_told_what_they_may_not(guarded: BrokerProcess, raw: RawClient) -> None:
    create_topic(raw, "secret")
    denials = [
        AclBinding(kind, "secret", ANONYMOUS, operation, AclPermission.DENY)
        for kind, operation in (
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.GROUP, AclOperation.READ),
        )
    ]
    with Admin({"bootstrap.servers": guarded.bootstrap}) as admin:
        for result in admin.create_acls(denials).values():
            result.get()
    refused: list[KafkaError | None] = []
    producer = LibrdkafkaProducer({"bootstrap.servers": guarded.bootstrap})
    producer.produce("secret", b"v", on_delivery=lambda error, _: refused.append(error))
    producer.flush(WITHIN_S)
    assert [error.code() for error in refused if error] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    consumer = Consumer({"bootstrap.servers": guarded.bootstrap, "group.id": "secret"})
    consumer.subscribe(["secret"])
    assert first_error(consumer) == ErrorCode.GROUP_AUTHORIZATION_FAILED


def first_error(consumer: Consumer) -> int:
    """What it polls up to there is passed over. It is closed."""
    found: list[int] = []

    def is_told() -> bool:
        message = consumer.poll(0.5)
        error = None if message is None else message.error()
        found.extend([] if error is None else [int(error.code())])
        return bool(found)

    try:
        eventually(is_told, WITHIN_S)
    finally:
        consumer.close()
    return found[0]


def test_a_right_that_is_taken_away_ends_a_consumer_that_is_at_work(
    guarded: BrokerProcess, raw: RawClient
) -> None:
    create_topic(raw, "t")
    produce(raw, "t", batch(b"one"))
    settings = {"bootstrap.servers": guarded.bootstrap, "group.id": "g"}
    settings["auto.offset.reset"] = "earliest"
    with Admin({"bootstrap.servers": guarded.bootstrap}) as admin:
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        read: list[bytes | None] = []

        def has_read() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                read.append(message.value())
            return bool(read)

        eventually(has_read, WITHIN_S)
        denial = AclBinding(
            ResourceType.TOPIC, "t", ANONYMOUS, AclOperation.READ, AclPermission.DENY
        )
        admin.create_acls([denial])[denial].get()
    assert read == [b"one"]
    assert first_error(consumer) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TestCommand:
    @pytest.fixture
    def broker(self, start_broker: StartBroker) -> BrokerProcess:
        return start_broker({**AUTHORIZER, "super.users": ANONYMOUS})

    @pytest.fixture
    def acl(self, capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> Console:
        return Console(capsys, "acl", broker.bootstrap)

    def test_acls_are_added_listed_and_removed(self, acl: Console) -> None:
        who = ("--allow-principal", "User:alice")
        added = acl("add", "--producer", "--topic", "orders", *who)
        assert {row["OPERATION"] for row in added} == {"WRITE", "DESCRIBE", "CREATE"}
        acl("add", "--consumer", "--topic", "orders", "--group", "readers", *who)
        acl(
            *("add", "--topic", "ord", "--resource-pattern-type", "prefixed"),
            *("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "read"),
        )
        everything = acl("list")
        assert len(everything) == 6
        assert (
            everything[-1]
            == {
                "PRINCIPAL": "User:bob",
                "HOST": "10.0.0.1",
                "PERMISSION": "DENY",
                "OPERATION": "READ",
                "RESOURCE": "TOPIC",
                "NAME": "ord",
                "PATTERN": "PREFIXED",
            }
            or everything[0]["PRINCIPAL"] == "User:bob"
        )
        acl("list", "--topic", "orders", "--resource-pattern-type", "match", "-o", "json")
        assert len(json.loads(acl.text)) == 5
        assert len(acl("list", "--principal", "User:bob")) == 1
        assert len(acl("list", "--group", "readers")) == 1
        shown = acl("remove", "--producer", "--topic", "orders", *who, "--dry-run")
        assert len(shown) == 3
        assert len(acl("list")) == 6
        acl("remove", "--producer", "--topic", "orders", *who, "--yes")
        assert "Removed 3 ACLs" in acl.text + acl.errors
        acl("remove", "--topic", "ord", "--resource-pattern-type", "any", "--yes")
        left = {(row["RESOURCE"], row["OPERATION"]) for row in acl("list")}
        assert left == {("TOPIC", "READ"), ("GROUP", "READ")}

    def test_nothing_is_added_by_a_dry_run(self, acl: Console) -> None:
        assert len(acl("add", "--cluster", "--allow-principal", "User:a", "--dry-run")) == 1
        assert acl("list") == []
        assert "There are no such ACLs." in acl.errors

    def test_kafkas_own_tool_has_its_flags_and_words(
        self, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tool = ("kafka", "kafka-acls.sh", "--bootstrap-server", broker.bootstrap)
        added = ("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
        assert main([*tool, *added]) == 0
        assert capsys.readouterr().out == (
            "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, "
            "patternType=LITERAL)`: \n"
            " \t(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)\n"
            "\t(principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW)\n"
            "\t(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW) \n\n"
        )
        assert main([*tool, "--list", "--topic", "orders"]) == 0
        assert "Current ACLs for resource `ResourcePattern(" in capsys.readouterr().out
        assert main([*tool, "--list", "--principal", "User:bob"]) == 0
        assert capsys.readouterr().out == "ACLs for principal `User:bob`\n"
        assert main([*tool, "--remove", "--topic", "orders", "--force"]) == 0
        capsys.readouterr()
        assert main([*tool, "--list"]) == 0
        assert capsys.readouterr().out == ""
        assert main([*tool, "--list", "--add"]) == 1
        assert "exactly one action" in capsys.readouterr().err


def test_nobody_may_do_anything_without_acls_and_super_users(start_broker: StartBroker) -> None:
    broker = start_broker(AUTHORIZER)
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        with pytest.raises(ClientError) as raised:
            admin.describe_acls()
        assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert admin.list_topics() == []
