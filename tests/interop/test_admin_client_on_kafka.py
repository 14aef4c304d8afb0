"""tidelog's admin client against Apache Kafka 3.9 and 4.3: the stories that it tells tidelog, and
what tidelog's broker does not serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.interop.apache_kafka import kafka_or_skip, running
from tests.support.admin_stories import (
    STORIES,
    AdminStage,
    a_group_of_the_consumer_protocol_is_described,
    code_of,
)
from tests.support.eventually import eventually
from tidelog.client import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    Admin,
    ConfigResourceType,
    FeatureUpdate,
    PatternType,
    QuotaEntity,
    QuotaFilter,
    QuotaMatch,
    ResourceType,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    UnsupportedByBroker,
    UpgradeType,
)
from tidelog.client.errors import BrokerRefused
from tidelog.errors import ErrorCode

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "unstable.api.versions.enable": "false",
}


@pytest.fixture(scope="module", params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where it listens."""
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    with running(kafka_or_skip(request.param), data, AUTHORIZER) as process:
        yield f"127.0.0.1:{process.port}"


@pytest.fixture
def stage(kafka: str) -> Iterator[AdminStage]:
    with Admin(bootstrap_servers=kafka) as admin:
        yield AdminStage(admin, kafka)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_administrators_story(stage: AdminStage, story: Callable[[AdminStage], None]) -> None:
    has_new_groups = "group.version" in stage.admin.describe_features().finalized
    if story is a_group_of_the_consumer_protocol_is_described and not has_new_groups:
        pytest.skip("this Kafka has the consumer protocol in a preview alone")
    story(stage)


def test_quotas_are_set_read_and_removed(stage: AdminStage) -> None:
    admin = stage.admin
    alice = QuotaEntity.of({"user": stage.name("alice")})
    default = QuotaEntity.of({"client-id": None})
    wanted = {alice: {"producer_byte_rate": 1000.0}, default: {"request_percentage": 50.0}}
    trial = admin.alter_client_quotas(wanted, validate_only=True)
    assert all(result.is_ok for result in trial.values())
    assert all(result.is_ok for result in admin.alter_client_quotas(wanted).values())
    exact = [QuotaFilter("user", QuotaMatch.EXACT, stage.name("alice"))]
    eventually(lambda: admin.describe_client_quotas(exact) == {alice: wanted[alice]})
    of_default = [QuotaFilter("client-id", QuotaMatch.DEFAULT)]
    assert admin.describe_client_quotas(of_default, strict=True) == {default: wanted[default]}
    removal: dict[QuotaEntity, dict[str, float | None]] = {
        alice: {"producer_byte_rate": None},
        default: {"request_percentage": None},
    }
    assert all(result.is_ok for result in admin.alter_client_quotas(removal).values())
    eventually(lambda: admin.describe_client_quotas(exact) == {})


def test_scram_credentials_are_set_read_and_removed(stage: AdminStage) -> None:
    admin, user = stage.admin, stage.name("bob")
    mechanism = ScramMechanism.SCRAM_SHA_256
    assert code_of(admin.describe_user_scram_credentials([user])[user]) == (
        ErrorCode.RESOURCE_NOT_FOUND
    )
    set_ = admin.alter_user_scram_credentials([ScramUpsertion(user, mechanism, "secret")])
    assert set_[user].is_ok
    expected = [ScramCredential(mechanism, 4096)]
    eventually(lambda: admin.describe_user_scram_credentials([user])[user].value == expected)
    assert user in admin.describe_user_scram_credentials()
    weak = ScramUpsertion(user, mechanism, "secret", iterations=1)
    assert code_of(admin.alter_user_scram_credentials([weak])[user]) == (
        ErrorCode.UNACCEPTABLE_CREDENTIAL
    )
    assert admin.alter_user_scram_credentials([ScramDeletion(user, mechanism)])[user].is_ok


def test_acls_are_made_found_and_removed(stage: AdminStage) -> None:
    admin, user = stage.admin, f"User:{stage.name('carol')}"
    literal = AclBinding(ResourceType.TOPIC, "t", user, AclOperation.READ)
    prefixed = AclBinding(
        ResourceType.GROUP, "g-", user, AclOperation.ALL, pattern_type=PatternType.PREFIXED
    )
    made = admin.create_acls([literal, prefixed])
    assert all(result.is_ok for result in made.values())
    of_user = AclBindingFilter(principal=user)
    eventually(lambda: set(admin.describe_acls(of_user)) == {literal, prefixed})
    of_groups = AclBindingFilter(ResourceType.GROUP, principal=user)
    assert admin.delete_acls([of_groups])[of_groups].get() == [prefixed]
    assert admin.delete_acls([of_user])[of_user].get() == [literal]
    eventually(lambda: admin.describe_acls(of_user) == [])


def test_tokens_are_refused_on_an_open_listener(stage: AdminStage) -> None:
    with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN"):
        stage.admin.create_delegation_token()
    with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN"):
        stage.admin.describe_delegation_token()
    with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN"):
        stage.admin.renew_delegation_token(b"hmac")
    with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN"):
        stage.admin.expire_delegation_token(b"hmac")


def test_the_quorum_and_the_features_are_described(stage: AdminStage) -> None:
    admin = stage.admin
    quorum = admin.describe_quorum()
    assert quorum.leader_id == 1
    assert [voter.replica_id for voter in quorum.voters] == [1]
    assert quorum.high_watermark > 0
    features = admin.describe_features()
    level = features.finalized["metadata.version"].max_version
    assert level <= features.supported["metadata.version"].max_version
    trial = {"metadata.version": FeatureUpdate(level + 1_000)}
    assert not admin.update_features(trial, validate_only=True)["metadata.version"].is_ok
    down = {"metadata.version": FeatureUpdate(level - 1)}
    assert not admin.update_features(down, validate_only=True)["metadata.version"].is_ok
    removal = {"metadata.version": FeatureUpdate(0, UpgradeType.UNSAFE_DOWNGRADE)}
    assert not admin.update_features(removal, validate_only=True)["metadata.version"].is_ok
    same = {"metadata.version": level}
    assert admin.update_features(same, validate_only=True)["metadata.version"].is_ok
    with pytest.raises(BrokerRefused, match="BROKER_ID_NOT_REGISTERED"):
        admin.unregister_broker(77)


def test_resources_with_configurations_are_listed_where_the_broker_can(stage: AdminStage) -> None:
    topic = stage.topic()
    assert stage.admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]) == []
    try:
        found = stage.admin.list_config_resources([ConfigResourceType.TOPIC])
    except UnsupportedByBroker:
        assert KAFKA_VERSION.startswith("3.")
    else:
        assert topic in {resource.name for resource in found}
