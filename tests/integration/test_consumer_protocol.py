"""Groups of the new protocol (KIP-848), of tidelog's own client and of unmodified foreign ones.

Members of both protocols share groups, and brokers restart under them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

import tidelog.client
from tests.conftest import StartBroker
from tests.integration.test_consumer_groups import (
    OWN_CLIENTS,
    PARTITIONS,
    WITHIN_S,
    Feed,
    committed,
    make_topic,
    settled,
)
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.group_process import MemberOptions, MemberProcess, consumed, overlaps
from tests.support.raw_client import RawClient, create_topic

CONFIG = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "5",
}

Start = Callable[..., MemberProcess]


@pytest.fixture
def members() -> Iterator[list[MemberProcess]]:
    started: list[MemberProcess] = []
    yield started
    for member in started:
        if member.process.poll() is None:
            member.kill()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(CONFIG)


@pytest.fixture(params=["confluent", *OWN_CLIENTS])
def library(request: pytest.FixtureRequest) -> str:
    """Whose members the stories are told by."""
    name: str = request.param
    return name


@pytest.fixture
def start(
    broker: BrokerProcess, topic_name: str, members: list[MemberProcess], library: str
) -> Start:
    """Starts a member, of the consumer protocol unless asked otherwise."""
    default = MemberOptions(
        library, broker.bootstrap, "g", topic_name, "uniform", 4000, protocol="consumer"
    )

    def one_more(**options: str) -> MemberProcess:
        members.append(MemberProcess(replace(default, **options)))  # type: ignore[arg-type]
        return members[-1]

    return one_more


@pytest.fixture
def feed(broker: BrokerProcess, topic_name: str) -> Feed:
    make_topic(broker, topic_name)
    return Feed(broker.bootstrap, topic_name)


def all_read(feed: Feed, members: list[MemberProcess], live: list[MemberProcess]) -> None:
    """A round more is written, shared evenly by those who live, and read to its end."""
    feed.round()
    eventually(lambda: settled(live), WITHIN_S)
    eventually(lambda: consumed(members) == feed.everything, WITHIN_S)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go_and_no_record_is_skipped(
    feed: Feed, start: Start, members: list[MemberProcess], assignor: str
) -> None:
    first = start(strategy=assignor)
    all_read(feed, members, [first])
    second = start(strategy=assignor)
    all_read(feed, members, [first, second])
    third, fourth = start(strategy=assignor), start(strategy=assignor)
    all_read(feed, members, [first, second, third, fourth])
    first.leave()
    all_read(feed, members, [second, third, fourth])
    third.kill()
    all_read(feed, members, [second, fourth])
    second.leave()
    fourth.leave()
    assert overlaps(members) == []


def test_a_static_member_that_restarts_gets_its_partitions_back(
    broker: BrokerProcess, feed: Feed, start: Start, members: list[MemberProcess]
) -> None:
    one, two = start(instance="one"), start(instance="two")
    all_read(feed, members, [one, two])
    kept, others = two.owned, len(one.events_of("assigned"))
    two.leave()
    again = start(instance="two")
    feed.round()
    eventually(lambda: consumed(members) == feed.everything, WITHIN_S)
    assert again.owned == kept
    assert len(one.events_of("assigned")) == others, "the other member noticed"
    assert described(broker).state is ConsumerGroupState.STABLE


def test_a_static_member_that_dies_is_replaced_when_its_session_is_over(
    feed: Feed, start: Start, members: list[MemberProcess]
) -> None:
    one, two = start(instance="one"), start(instance="two")
    all_read(feed, members, [one, two])
    two.kill()
    all_read(feed, members, [one])
    again = start(instance="two")
    all_read(feed, members, [one, again])


def described(broker: BrokerProcess) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return admin.describe_consumer_groups(["g"])["g"].result(WITHIN_S)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_group_goes_on_after_the_broker_restarts(
    broker: BrokerProcess,
    topic_name: str,
    feed: Feed,
    start: Start,
    members: list[MemberProcess],
    end: str,
) -> None:
    all_read(feed, members, [start(), start()])
    all_committed = [feed.count] * PARTITIONS
    eventually(lambda: committed(broker, "g", topic_name) == all_committed, WITHIN_S)
    first_round = feed.count
    if end == "kill":
        broker.kill()
    else:
        broker.stop()
    broker.start()
    all_read(feed, members, members)
    for member in members:
        member.leave()
    again = [
        (event["partition"], event["offset"])
        for member in members
        for event in member.events_of("record")
        if event["offset"] < first_round
    ]
    assert len(again) == len(set(again)), "what was committed came again"
    assert overlaps(members) == []


def test_a_rolling_upgrade_and_back_skips_nothing(
    broker: BrokerProcess, feed: Feed, start: Start, members: list[MemberProcess]
) -> None:
    classic = {"protocol": "classic", "strategy": "cooperative-sticky"}
    live = [start(**classic) for _ in range(3)]
    all_read(feed, members, live)
    for _ in range(3):  # one by one; the first makes it a consumer group, in which both live
        live.pop(0).leave()
        live.append(start())
        all_read(feed, members, live)
        assert kind_of(broker) is ConsumerGroupType.CONSUMER
    for number in range(3):
        live.pop(0).leave()
        live.append(start(**classic))
        all_read(feed, members, live)
        is_last = number == 2
        expected = ConsumerGroupType.CLASSIC if is_last else ConsumerGroupType.CONSUMER
        assert kind_of(broker) is expected
    for member in live:
        member.leave()
    assert overlaps(members) == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_of_both_protocols_share_a_group(
    feed: Feed, start: Start, members: list[MemberProcess], strategy: str
) -> None:
    old = [start(protocol="classic", strategy=strategy) for _ in range(2)]
    all_read(feed, members, old)
    new = [start(), start()]
    all_read(feed, members, [*old, *new])
    old.pop().kill()
    all_read(feed, members, [*old, *new])
    new.pop().kill()
    all_read(feed, members, [*old, *new])
    later = start(protocol="classic", strategy=strategy)
    all_read(feed, members, [*old, *new, later])
    new.pop().leave()
    all_read(feed, members, [*old, later])
    assert overlaps(members) == []


def kind_of(broker: BrokerProcess) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (row,) = admin.list_consumer_groups().result(WITHIN_S).valid
    return row.type


@pytest.mark.parametrize("library", ["confluent", "tidelog"])
def test_a_pattern_is_resolved_by_the_broker(broker: BrokerProcess, library: str) -> None:
    def make(*names: str) -> None:
        with RawClient(broker.bootstrap) as client:
            for name in names:
                create_topic(client, name, partitions=2)

    make("orders-eu", "orders-us", "invoices")
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "group.protocol": "consumer",
    }
    consumer: Any
    if library == "tidelog":
        consumer = tidelog.client.Consumer(config)
        consumer.subscribe(pattern="orders-.*")
    else:
        consumer = Consumer(config)
        consumer.subscribe(["^orders-.*"])

    def topics() -> set[str]:
        consumer.poll(0.1)
        return {place.topic for place in consumer.assignment()}

    eventually(lambda: topics() == {"orders-eu", "orders-us"}, WITHIN_S)
    make("orders-asia", "unrelated")
    eventually(lambda: topics() == {"orders-eu", "orders-us", "orders-asia"}, WITHIN_S)
    consumer.close()


def test_new_partitions_are_shared_out(
    broker: BrokerProcess, topic_name: str, feed: Feed, start: Start
) -> None:
    from confluent_kafka.admin import NewPartitions

    one, two = start(), start()
    eventually(lambda: settled([one, two]), WITHIN_S)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic_name, PARTITIONS + 2)])[topic_name].result()
    everything = set(range(PARTITIONS + 2))
    eventually(lambda: one.owned | two.owned == everything, WITHIN_S)
    assert len(one.owned) == len(two.owned)


def test_kafka_admin_tools_see_describe_and_delete_the_group(
    broker: BrokerProcess, topic_name: str, feed: Feed, start: Start
) -> None:
    member = start()
    eventually(lambda: settled([member]), WITHIN_S)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (row,) = admin.list_consumer_groups().result(WITHIN_S).valid
    assert (row.group_id, row.state) == ("g", ConsumerGroupState.STABLE)
    description = admin.describe_consumer_groups(["g"])["g"].result(WITHIN_S)
    assert description.type is ConsumerGroupType.CONSUMER
    assert description.partition_assignor == "uniform"
    (seen,) = description.members
    assert {place.partition for place in seen.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g"])["g"].result(WITHIN_S)
    member.leave()
    admin.delete_consumer_groups(["g"])["g"].result(WITHIN_S)
    assert admin.list_consumer_groups().result(WITHIN_S).valid == []
    assert committed(broker, "g", topic_name) == [-1001] * PARTITIONS


def test_a_member_commits_and_finds_its_place_again(
    broker: BrokerProcess, topic_name: str, feed: Feed
) -> None:
    feed.round()
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(config)
    consumer.subscribe([topic_name])
    eventually(lambda: len(consumer.consume(1, 0.1)) == 1, WITHIN_S)
    places = [TopicPartition(topic_name, index, 7) for index in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    again = Consumer(config)
    again.subscribe([topic_name])
    found: set[int | None] = set()

    def read_on() -> bool:
        found.update(record.offset() for record in again.consume(50, 0.2))
        return bool(found)

    eventually(read_on, WITHIN_S)
    assert min(filter(None, found)) == 7
    again.close()


def test_a_member_of_tidelog_commits_and_finds_its_place_again(
    broker: BrokerProcess, topic_name: str, feed: Feed
) -> None:
    feed.round()
    places = [tidelog.client.TopicPartition(topic_name, index) for index in range(PARTITIONS)]
    config: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with tidelog.client.Consumer(config) as consumer:
        consumer.subscribe([topic_name])
        eventually(lambda: len(consumer.poll(0.1, max_records=1)) == 1, WITHIN_S)
        consumer.commit(dict.fromkeys(places, 7))
    found: set[int] = set()
    with tidelog.client.Consumer(config) as again:
        again.subscribe([topic_name])

        def read_on() -> bool:
            found.update(record.offset for record in again.poll(0.2))
            return bool(found)

        eventually(read_on, WITHIN_S)
    assert min(found) == 7
