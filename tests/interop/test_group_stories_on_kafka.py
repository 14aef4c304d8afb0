"""Members of tidelog's client on Apache Kafka 3.9 and 4.3: the stories of groups they tell tidelog.

Both protocols, and both clients: the blocking one and the one of asyncio.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from tests.integration.test_consumer_groups import (
    GROUP_CONFIG,
    OWN_CLIENTS,
    commit_with_tidelog,
    committed_by_tidelog,
    members,
)
from tests.integration.test_consumer_groups import (
    test_commits_survive_kill_minus_nine as commits_story,
)
from tests.integration.test_consumer_groups import (
    test_group_goes_on_after_the_broker_restarts as classic_restart_story,
)
from tests.integration.test_consumer_groups import (
    test_kafka_admin_tools_see_describe_and_delete_groups as classic_tools_story,
)
from tests.integration.test_consumer_groups import (
    test_members_come_and_go_and_no_record_is_skipped as classic_members_story,
)
from tests.integration.test_consumer_groups import (
    test_static_member_restarts_without_a_rebalance as classic_static_story,
)
from tests.integration.test_consumer_protocol import (
    CONFIG,
    feed,
    start,
    test_a_group_goes_on_after_the_broker_restarts,
    test_a_member_of_tidelog_commits_and_finds_its_place_again,
    test_a_rolling_upgrade_and_back_skips_nothing,
    test_a_static_member_that_dies_is_replaced_when_its_session_is_over,
    test_a_static_member_that_restarts_gets_its_partitions_back,
    test_kafka_admin_tools_see_describe_and_delete_the_group,
    test_members_come_and_go_and_no_record_is_skipped,
    test_members_of_both_protocols_share_a_group,
    test_new_partitions_are_shared_out,
)
from tests.integration.test_consumer_protocol import (
    test_a_pattern_is_resolved_by_the_broker as pattern_story,
)
from tests.interop.apache_kafka import ApacheKafkaBroker
from tests.support.group_process import MemberProcess

# Told here by pytest, which finds them and their fixtures under these names.
STORIES = (
    feed,
    members,
    start,
    test_a_group_goes_on_after_the_broker_restarts,
    test_a_member_of_tidelog_commits_and_finds_its_place_again,
    test_a_rolling_upgrade_and_back_skips_nothing,
    test_a_static_member_that_dies_is_replaced_when_its_session_is_over,
    test_a_static_member_that_restarts_gets_its_partitions_back,
    test_kafka_admin_tools_see_describe_and_delete_the_group,
    test_members_come_and_go_and_no_record_is_skipped,
    test_members_of_both_protocols_share_a_group,
    test_new_partitions_are_shared_out,
)
# Kafka 3.9 has the consumer protocol only where it is asked for.
BOTH_PROTOCOLS = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.migration.policy": "bidirectional",
}
with_own_clients = pytest.mark.parametrize("client", OWN_CLIENTS)


@pytest.fixture(params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApacheKafkaBroker]:
    overrides = {**GROUP_CONFIG, **CONFIG, **BOTH_PROTOCOLS}
    started = ApacheKafkaBroker(request.param, tmp_path, overrides)
    yield started
    started.kill()


@pytest.fixture
def group_broker(broker: ApacheKafkaBroker) -> Any:
    return broker


@pytest.fixture(params=OWN_CLIENTS)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize(
    ("client", "strategy"),
    [
        ("tidelog", "range"),
        ("tidelog", "cooperative-sticky"),
        ("tidelog-async", "roundrobin"),
        ("tidelog-async", "sticky"),
    ],
)
def test_classic_members_come_and_go_and_no_record_is_skipped(
    group_broker: Any, topic_name: str, members: list[MemberProcess], client: str, strategy: str
) -> None:
    classic_members_story(group_broker, topic_name, members, client, strategy)


@with_own_clients
def test_a_static_classic_member_restarts_without_a_rebalance(
    group_broker: Any, topic_name: str, members: list[MemberProcess], client: str
) -> None:
    classic_static_story(group_broker, topic_name, members, client)


def test_commits_survive_kill_minus_nine(group_broker: Any, topic_name: str) -> None:
    commits_story(group_broker, topic_name, commit_with_tidelog, committed_by_tidelog)


@with_own_clients
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_classic_group_goes_on_after_the_broker_restarts(
    group_broker: Any, topic_name: str, members: list[MemberProcess], end: str, client: str
) -> None:
    classic_restart_story(group_broker, topic_name, members, end, client)


@with_own_clients
def test_kafka_admin_tools_see_describe_and_delete_classic_groups(
    group_broker: Any, topic_name: str, members: list[MemberProcess], client: str
) -> None:
    classic_tools_story(group_broker, topic_name, members, client)


def test_a_pattern_is_resolved_by_the_broker(broker: Any, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["broker"] == KAFKA_VERSION:
        pytest.skip("Kafka 3.9 evaluates no patterns")
    pattern_story(broker, "tidelog")
