"""The console's pages of ACLs, users and quotas against brokers with and without an authorizer."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.console_client import ConsoleClient
from tests.support.sasl_broker import PASSWORD, start_sasl_broker
from tidelog.acls import AclBindingFilter
from tidelog.client import Admin
from tidelog.client.admin.quotas import QuotaEntity
from tidelog.tools.console.settings import ConsoleSettings

OPEN = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def console(bootstrap: str) -> Iterator[ConsoleClient]:
    """Of a cluster without an authorizer."""
    settings = ConsoleSettings({"bootstrap.servers": bootstrap}, can_write=True)
    with ConsoleClient(settings) as client:
        yield client


def test_acls_are_added_filtered_and_deleted_after_a_look(start_broker: StartBroker) -> None:
    bootstrap = start_broker(OPEN).bootstrap
    settings = ConsoleSettings({"bootstrap.servers": bootstrap}, can_write=True)
    with ConsoleClient(settings) as console, Admin(bootstrap_servers=bootstrap) as admin:
        assert "There are no ACLs" in console.get("/acls").words
        form = {
            "principal": f"User:{SCRIPT}",
            "resource": "TOPIC",
            "name": "orders",
            "operation": ["READ", "WRITE"],
        }
        look = console.post("/acls/preview", form)
        assert "2 ACLs to add" in look.words
        assert SCRIPT not in look.text
        assert admin.describe_acls() == []

        hidden = dict(re.findall(r'name="(\w+)" value="([^"]*)"', look.text))
        assert hidden["name"] == "orders"
        done = console.post("/acls/add", form)
        assert (done.status, done.location) == (303, "/acls")
        page = console.get("/acls")
        assert "2 ACLs added" in page.words
        assert f"User:{SCRIPT}" in page.words
        assert SCRIPT not in page.text
        assert len(admin.describe_acls()) == 2
        assert "No ACL matches" in console.get("/acls?text=no-such-name").words

        first = html.unescape(re.findall(r'name="acl" value="([^"]*)"', page.text)[0])
        question = console.post("/acls/ask-delete", acl=first)
        assert "1 ACL to delete" in question.words
        assert len(admin.describe_acls()) == 2
        done = console.post("/acls/delete", acl=first)
        assert "1 ACL deleted" in console.get(done.location).words
        (left,) = admin.describe_acls(AclBindingFilter())
        assert left.principal == f"User:{SCRIPT}"
        assert console.post("/acls/ask-delete").status == 400
        assert console.post("/acls/preview", {**form, "name": ""}).status == 400

    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        page = console.get("/acls")
        assert "Allow or deny" not in page.words
        assert console.post("/acls/add", form).status == 403
        assert console.post("/acls/delete", acl=first).status == 403


def test_a_cluster_without_an_authorizer_says_so_calmly(console: ConsoleClient) -> None:
    page = console.get("/acls")
    assert page.status == 200
    assert "This cluster has no authorizer" in page.words


def test_users_get_passwords_and_lose_them(
    console: ConsoleClient, bootstrap: str, topic_name: str
) -> None:
    user = f"{topic_name}{SCRIPT}"
    form = {
        "user": user,
        "password": "first & 'secret'",
        "again": "first & 'secret'",
        "mechanism": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "iterations": "4096",
    }
    done = console.post("/users/set", form)
    assert (done.status, done.location) == (303, "/users")
    page = console.get("/users?text=" + topic_name)
    assert user in page.words
    assert SCRIPT not in page.text
    assert "SCRAM-SHA-256 4,096 iterations SCRAM-SHA-512" in page.words
    for wrong in (
        {"again": "other"},
        {"password": ""},
        {"mechanism": "PLAIN"},
        {"iterations": "12"},
        {"iterations": "many"},
        {"user": ""},
    ):
        refused = console.post("/users/set", {**form, **wrong})
        assert (refused.status, "Nothing was changed" in refused.words) == (400, True)
        assert "secret" not in refused.text

    assert console.post("/users/delete", user=user, confirm="x").status == 400
    assert console.post("/users/delete", user=user, confirm=user).status == 303
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert user not in admin.describe_user_scram_credentials()


def test_quotas_are_set_and_removed(
    console: ConsoleClient, bootstrap: str, topic_name: str
) -> None:
    form = {"user": topic_name, "client-id": "", "ip": "", "default": "client-id"}
    done = console.post("/quotas/alter", {**form, "producer_byte_rate": "1048576"})
    assert (done.status, done.location) == (303, "/quotas")
    entity = QuotaEntity.of({"user": topic_name, "client-id": None})
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_client_quotas()[entity] == {"producer_byte_rate": 1048576.0}
        page = console.get("/quotas?text=" + topic_name)
        assert "1,048,576" in page.words
        (whole,) = re.findall(r'name="entity" value="([^"]*)"', page.text)
        gone = console.post("/quotas/remove", entity=html.unescape(whole), key="producer_byte_rate")
        assert gone.status == 303
        assert entity not in admin.describe_client_quotas()
    assert console.post("/quotas/alter", form).status == 400
    assert console.post("/quotas/remove", entity="[]", key="producer_byte_rate").status == 400


def test_a_console_that_only_reads_changes_no_user_and_no_quota(bootstrap: str) -> None:
    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        assert "New password" not in console.get("/users").text
        assert "Set quotas" not in console.get("/quotas").text
        for path in ("/users/set", "/users/delete", "/quotas/alter", "/quotas/remove"):
            assert console.post(path, user="u", confirm="u").status == 403


def test_pages_show_a_user_what_the_cluster_lets_that_user_see(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Files, listeners and pipelines know no ACLs: what is allowed on the cluster counts."""
    broker = start_sasl_broker(start_broker, {**OPEN, "super.users": "User:ANONYMOUS;User:bob"})
    settings = ConsoleSettings(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
        },
        can_write=True,
        logs=(tmp_path,),
        pipelines=tmp_path,
        metrics_urls=("http://127.0.0.1:1",),
    )
    reading = "/segments"
    with ConsoleClient(settings) as console:
        assert console.get("/acls").location.startswith("/login")
        console.post("/login", user="alice", password=PASSWORD)
        refused = console.get(reading)
        assert (refused.status, "takes ALTER on the cluster" in refused.words) == (403, True)
        assert console.get("/pipelines").status == 403
        assert "takes DESCRIBE on the cluster" in console.get("/events").words
        assert "does not allow you to see this" in console.get("/acls").words
        assert "does not allow you to see this" in console.get("/users").words
        assert "does not allow you to see this" in console.get("/quotas").words
        assert console.get("/groups").status in (200, 403)
        assert console.get("/transactions").status == 200
        form = {"user": "eve", "password": "p", "again": "p", "mechanism": "SCRAM-SHA-256"}
        assert console.post("/users/set", form).status == 403

        console.post("/logout")
        console.post("/login", user="bob", password="bob-secret")
        for path in (reading, "/pipelines", "/acls", "/users", "/quotas"):
            assert console.get(path).status == 200, path
        assert "does not allow" not in console.get("/acls").words
        assert "ALTER" not in console.get("/events").words
