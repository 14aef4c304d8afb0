"""Who gets nowhere at a listener with TLS and SASL on top of it (SASL_SSL)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.certificates import Authority
from tests.support.raw_client import ClosedByBroker, RawClient, api_versions
from tests.support.sasl_broker import USER, SaslBroker, running_sasl_broker
from tidelog.client import Admin, AuthenticationFailed, NewTopic, TlsFailed

pytestmark = pytest.mark.integration

MECHANISM = "SCRAM-SHA-512"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """Its authorizer lets super users in, and the users of the plain listener, which is ours."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    allowed = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{USER};User:ANONYMOUS",
    }
    directory = tmp_path_factory.mktemp("broker")
    with running_sasl_broker(directory, allowed, authority=authority) as started:
        yield started
        assert "Traceback" not in started.process.log_text()


def test_the_user_decides_what_the_client_may_do(broker: SaslBroker, topic_name: str) -> None:
    with Admin(broker.config(MECHANISM)) as admin:
        admin.create_topics([NewTopic(f"{topic_name}-of-a-super-user")]).popitem()[1].get()
    with Admin(broker.config("PLAIN", "bob", "bob-secret")) as admin:
        result = admin.create_topics([NewTopic(topic_name)])[topic_name]
    assert "AUTHORIZATION_FAILED" in str(result.error)


def test_strangers_are_refused(broker: SaslBroker) -> None:
    with (
        Admin(broker.config(MECHANISM, password="wrong")) as admin,
        pytest.raises(AuthenticationFailed),
    ):
        admin.list_topics()
    with RawClient(broker.bootstrap) as client, pytest.raises(ClosedByBroker):
        api_versions(client)


def test_a_broker_that_the_client_does_not_trust_gets_no_password(
    broker: SaslBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    another = broker._replace(authority=Authority(tmp_path_factory.mktemp("another")))
    with Admin(another.config(MECHANISM)) as admin, pytest.raises(TlsFailed):
        admin.list_topics()
