"""Delegation tokens of a real broker: made, used by other clients, renewed, ended."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.sasl_broker import USER, SaslBroker, start_sasl_broker
from tidelog.acls import AclBinding, AclOperation, AclPermission, ResourceType
from tidelog.client import (
    Admin,
    AuthenticationFailed,
    Consumer,
    DelegationToken,
    NewTopic,
    Producer,
)
from tidelog.client.admin.credentials import Principal
from tidelog.client.errors import ClientError
from tidelog.config.jaas import SCRAM_MODULE
from tidelog.config.server_properties import escaped_value, load_properties
from tidelog.errors import ErrorCode

SECRET = {"delegation.token.secret.key": "the secret of all brokers"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
BOB = Principal("User", "bob")
TIDELOG = str(Path(sys.executable).parent / "tidelog")
VALUES = [f"record {number}".encode() for number in range(20)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    started: list[BrokerProcess] = []

    def start(overrides: dict[str, str]) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path_factory.mktemp("tokens") / "broker", overrides))
        return started[0].start()

    yield start_sasl_broker(start, SECRET)
    started[0].kill()
    assert not started[0].long_stalls()


def password_of(token: DelegationToken) -> str:
    return base64.b64encode(token.hmac).decode()


def login(
    broker: SaslBroker, token: DelegationToken, mechanism: str = "SCRAM-SHA-256", **more: Any
) -> dict[str, Any]:
    jaas = (
        f'{SCRAM_MODULE} required username="{token.token_id}" password="{password_of(token)}" '
        'tokenauth="true";'
    )
    return {**broker.config(mechanism, **more), "sasl.jaas.config": jaas}


@pytest.fixture
def admin(broker: SaslBroker) -> Iterator[Admin]:
    with Admin(broker.config("SCRAM-SHA-256")) as made:
        yield made


def refused(code: ErrorCode, call: Any, *arguments: Any, **named: Any) -> None:
    with pytest.raises(ClientError) as raised:
        call(*arguments, **named)
    assert raised.value.code == code


def until_found(found: list[Any], more: Callable[[], list[Any]]) -> None:
    def has_all() -> bool:
        found.extend(more())
        return len(found) >= len(VALUES)

    eventually(has_all)


class TestClients:
    @pytest.mark.parametrize("mechanism", SCRAM)
    def test_tidelogs_own(
        self, broker: SaslBroker, admin: Admin, topic_name: str, mechanism: str
    ) -> None:
        token = admin.create_delegation_token()
        with Admin(login(broker, token, mechanism)) as by_token:
            by_token.create_topics([NewTopic(topic_name)])[topic_name].get()
        with Producer(login(broker, token, mechanism)) as producer:
            for value in VALUES:
                producer.send(topic_name, value=value)
            producer.flush()
        config = login(broker, token, mechanism, group_id=topic_name, auto_offset_reset="earliest")
        found: list[Any] = []
        with Consumer(config) as consumer:
            consumer.subscribe([topic_name])
            until_found(found, lambda: list(consumer.poll(1.0)))
        assert [record.value for record in found] == VALUES

    def test_confluent_kafka_has_no_tokenauth_and_is_refused(
        self, broker: SaslBroker, admin: Admin
    ) -> None:
        """librdkafka sends no extensions, so the id is the name of a user that does not exist."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        token = admin.create_delegation_token()
        theirs = AdminClient(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": token.token_id,
                "sasl.password": password_of(token),
            }
        )
        with pytest.raises(KafkaException):
            theirs.list_topics(timeout=5)


class TestRules:
    def test_a_token_begets_no_tokens(self, broker: SaslBroker, admin: Admin) -> None:
        token = admin.create_delegation_token()
        not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        with Admin(login(broker, token)) as by_token:
            refused(not_allowed, by_token.create_delegation_token)
            refused(not_allowed, by_token.describe_delegation_token)
            refused(not_allowed, by_token.renew_delegation_token, token.hmac)
            refused(not_allowed, by_token.expire_delegation_token, token.hmac)
            by_token.list_topics()

    def test_nobody_knows_who_asks_on_a_plain_listener(self, broker: SaslBroker) -> None:
        with Admin({"bootstrap.servers": broker.plain_bootstrap}) as unknown:
            not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            refused(not_allowed, unknown.create_delegation_token)
            refused(not_allowed, unknown.describe_delegation_token)

    def test_owner_and_renewers_change_it_and_others_do_not(
        self, broker: SaslBroker, admin: Admin
    ) -> None:
        token = admin.create_delegation_token(renewers=[BOB], max_lifetime_ms=3_600_000)
        assert token.expiry_timestamp == token.max_timestamp == token.issue_timestamp + 3_600_000
        assert (token.owner, token.requester) == (Principal("User", USER),) * 2
        with Admin(broker.config("PLAIN", "bob", "bob-secret")) as bob:
            assert token in bob.describe_delegation_token()
            assert bob.expire_delegation_token(token.hmac, period_ms=60_000) > 0
            assert bob.renew_delegation_token(token.hmac) == token.max_timestamp
            mine = bob.create_delegation_token()
        refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, admin.renew_delegation_token, mine.hmac)
        refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, admin.renew_delegation_token, b"no such")
        group = Principal("Group", "admins")
        refused(ErrorCode.INVALID_PRINCIPAL_TYPE, admin.create_delegation_token, renewers=[group])
        refused(ErrorCode.INVALID_PRINCIPAL_TYPE, admin.create_delegation_token, owner=group)

    def test_a_token_that_was_ended_is_good_for_nothing(
        self, broker: SaslBroker, admin: Admin
    ) -> None:
        token = admin.create_delegation_token()
        with Admin(login(broker, token)) as by_token:
            by_token.list_topics()
        admin.expire_delegation_token(token.hmac)
        assert token not in admin.describe_delegation_token()
        with pytest.raises(AuthenticationFailed), Admin(login(broker, token)) as by_token:
            by_token.list_topics()

    def test_a_wrong_hmac_is_refused(self, broker: SaslBroker, admin: Admin) -> None:
        token = admin.create_delegation_token()._replace(hmac=b"wrong")
        with pytest.raises(AuthenticationFailed), Admin(login(broker, token)) as by_token:
            by_token.list_topics()

    def test_no_secret_is_in_the_log(self, broker: SaslBroker, admin: Admin) -> None:
        token = admin.create_delegation_token()
        eventually(lambda: token.token_id in broker.process.log_text())
        assert password_of(token) not in broker.process.log_text()
        assert SECRET["delegation.token.secret.key"] not in broker.process.log_text()


def test_without_a_secret_there_are_no_tokens(start_broker: StartBroker) -> None:
    broker = start_sasl_broker(start_broker)
    with Admin(broker.config("PLAIN")) as admin:
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        refused(disabled, admin.create_delegation_token)
        refused(disabled, admin.describe_delegation_token)
        refused(disabled, admin.renew_delegation_token, b"x")
        refused(disabled, admin.expire_delegation_token, b"x")


def test_tokens_outlive_the_broker_and_expire(start_broker: StartBroker) -> None:
    short = {"delegation.token.expiry.check.interval.ms": "200"}
    broker = start_sasl_broker(start_broker, {**SECRET, **short})
    with Admin(broker.config("SCRAM-SHA-256")) as admin:
        kept = admin.create_delegation_token()
        gone = admin.create_delegation_token(max_lifetime_ms=3_000)
        with Producer(login(broker, gone, linger_ms=0)) as producer:
            producer.send("t", value=b"x").result(60)
            eventually(
                lambda: [t.token_id for t in admin.describe_delegation_token()] == [kept.token_id]
            )
            time.sleep(0.1)
            with pytest.raises(ClientError):  # its session ended with the token
                producer.send("t", value=b"x").result(60)
    broker.process.restart()
    with Admin(login(broker, kept)) as admin:
        admin.list_topics()
    with pytest.raises(AuthenticationFailed), Admin(login(broker, gone)) as admin:
        admin.list_topics()


def test_with_an_authorizer_tokens_of_others_need_a_right(start_broker: StartBroker) -> None:
    overrides = {
        **SECRET,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = start_sasl_broker(start_broker, overrides)
    denied = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    with (
        Admin({"bootstrap.servers": broker.plain_bootstrap}) as root,
        Admin(broker.config("SCRAM-SHA-256")) as alice,
        Admin(broker.config("PLAIN", "bob", "bob-secret")) as bob,
    ):

        def allow(kind: ResourceType, name: str, operation: AclOperation) -> None:
            acl = AclBinding(kind, name, f"User:{USER}", operation, AclPermission.ALLOW)
            root.create_acls([acl])[acl].get()

        mine = bob.create_delegation_token()
        refused(denied, alice.create_delegation_token, owner=BOB)
        assert alice.describe_delegation_token() == []
        allow(ResourceType.USER, "User:bob", AclOperation.CREATE_TOKENS)
        for_bob = alice.create_delegation_token(owner=BOB)
        assert (for_bob.owner, for_bob.requester) == (BOB, Principal("User", USER))
        assert for_bob in bob.describe_delegation_token()
        assert alice.describe_delegation_token() == []
        allow(ResourceType.DELEGATION_TOKEN, mine.token_id, AclOperation.DESCRIBE)
        assert alice.describe_delegation_token() == [mine]
        allow(ResourceType.USER, "User:bob", AclOperation.DESCRIBE_TOKENS)
        assert set(alice.describe_delegation_token([BOB])) == {mine, for_bob}
        assert alice.describe_delegation_token([]) == []
        with Admin(login(broker, for_bob)) as by_token:
            refused(
                ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, by_token.create_delegation_token
            )


class TestCommand:
    def run(self, properties: Path, *arguments: str) -> str:
        done = subprocess.run(
            [TIDELOG, "--timeout", "60s", *arguments, "--config", str(properties)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def properties(self, broker: SaslBroker, path: Path) -> Path:
        config = broker.config("PLAIN", "bob", "bob-secret")
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return path

    def test_tokens_are_made_listed_renewed_and_ended(
        self, broker: SaslBroker, tmp_path: Path
    ) -> None:
        bob, saved = self.properties(broker, tmp_path / "bob.properties"), tmp_path / "token"
        made = json.loads(
            self.run(bob, "token", "create", "--renewer", "alice", "--lifetime", "2h", "-o", "json")
        )
        assert (made[0]["owner"], made[0]["renewers"]) == ("User:bob", "User:alice")
        assert made[0]["hmac"]
        token_id = made[0]["token"]
        listed = self.run(bob, "token", "list")
        assert token_id in listed
        assert made[0]["hmac"] not in listed
        assert made[0]["hmac"] in self.run(bob, "token", "list", "--hmac", "--owner", "bob")
        before = self.run(bob, "token", "list", "-o", "json")
        would = f"token {token_id}: would "
        assert "token of yours would be made" in self.run(bob, "token", "create", "--dry-run")
        assert f"{would}be renewed" in self.run(bob, "token", "renew", token_id, "--dry-run")
        longest = self.run(bob, "token", "renew", token_id, "--for", "20d", "--dry-run")
        assert longest.strip() == f"{would}expire at {made[0]['max']}"
        assert f"{would}be ended" in self.run(bob, "token", "expire", token_id, "--dry-run")
        assert self.run(bob, "token", "list", "-o", "json") == before
        assert "expires at" in self.run(bob, "token", "renew", token_id, "--for", "1h")
        assert "expires at" in self.run(bob, "token", "expire", token_id, "--after", "10m")
        assert "ended" in self.run(bob, "token", "expire", token_id)
        assert token_id not in self.run(bob, "token", "list")
        self.run(bob, "token", "create", "--save", str(saved), "--mechanism", "scram-sha-256")
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        self.run(saved, "topic", "list")

    def test_a_saved_login_has_the_makers_own_mechanism_and_certificates_in_lines(
        self, broker: SaslBroker, tmp_path: Path
    ) -> None:
        """A broker may have only one of the two mechanisms."""
        alice, saved = tmp_path / "alice.properties", tmp_path / "token"
        alice.write_text(
            "".join(f"{k}={escaped_value(v)}\n" for k, v in broker.config("SCRAM-SHA-256").items())
            + "ssl.truststore.certificates=BEGIN\\nsecurity.protocol\\n"
        )
        self.run(alice, "token", "create", "--save", str(saved))
        texts = {each.key: each.value for each in load_properties(saved)}
        assert texts["sasl.mechanism"] == "SCRAM-SHA-256"
        assert texts["ssl.truststore.certificates"] == "BEGIN\nsecurity.protocol\n"

    def test_kafkas_own_tool_has_its_flags_and_words(
        self, broker: SaslBroker, tmp_path: Path
    ) -> None:
        bob = self.properties(broker, tmp_path / "bob.properties")

        def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [TIDELOG, "kafka", "delegation-tokens.sh", *arguments],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )

        where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(bob))
        made = tool(
            *where, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice"
        )
        assert made.returncode == 0, made.stderr
        lines = made.stdout.splitlines()
        assert lines[0] == (
            "Calling create token operation with renewers :[User:alice] , max-life-time-period :-1"
        )
        assert lines[1].startswith("Created delegation token with tokenId : ")
        assert lines[3].split() == [
            "TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE",
            "MAXDATE",
        ]  # fmt: skip
        token_id, hmac, owner, requester, renewers, *_ = lines[5].split()
        assert (owner, requester, renewers) == ("User:bob", "User:bob", "[User:alice]")
        described = tool(*where, "--describe", "--owner-principal", "User:bob").stdout
        assert "Calling describe token operation for owners: [User:bob]\n" in described
        assert token_id in described
        renewed = tool(*where, "--renew", "--hmac", hmac, "--renew-time-period", "-1").stdout
        assert "Completed renew operation. New expiry date : 20" in renewed
        ended = tool(*where, "--expire", "--hmac", hmac, "--expiry-time-period", "-1").stdout
        assert "Completed expire operation. New expiry date : 20" in ended
        assert token_id not in tool(*where, "--describe").stdout
        for wrong in (("--create",), ("--create", "--describe"), ("--renew", "--hmac", "eA==")):
            assert tool(*where, *wrong).returncode == 1
        again = tool(*where, "--renew", "--hmac", hmac, "--renew-time-period", "-1")
        assert again.returncode == 1
        assert "DelegationTokenNotFoundException" in again.stderr
