"""Groups of tidelog's own client and of unmodified foreign ones.

Members join, leave, die and restart, and so does the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import tidelog.client
from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.group_process import MemberOptions, MemberProcess, consumed, overlaps
from tests.support.raw_client import RawClient, create_topic

PARTITIONS = 6
ROUND = 20  # records a partition between two events
WITHIN_S = 30.0
GROUP_CONFIG = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "5",
}

OWN_CLIENTS = ("tidelog", "tidelog-async")
with_each_client = pytest.mark.parametrize("client", ["confluent", *OWN_CLIENTS])

StartMember = Callable[..., MemberProcess]


class Feed:
    """Writes a round of records to every partition, and knows how many there are."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self.count = 0  # a partition

    def round(self) -> None:
        for number in range(self.count, self.count + ROUND):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"%d" % number, partition=partition)
        assert self._producer.flush(WITHIN_S) == 0
        self.count += ROUND

    @property
    def everything(self) -> dict[int, set[int]]:
        return {partition: set(range(self.count)) for partition in range(PARTITIONS)}


@pytest.fixture
def members() -> Iterator[list[MemberProcess]]:
    started: list[MemberProcess] = []
    yield started
    for member in started:
        if member.process.poll() is None:
            member.kill()


@pytest.fixture
def group_broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(GROUP_CONFIG)


def make_topic(broker: BrokerProcess, name: str) -> None:
    with RawClient(broker.bootstrap) as client:
        create_topic(client, name, partitions=PARTITIONS)


def settled(live: list[MemberProcess]) -> bool:
    """All partitions are owned, each once, and evenly."""
    owned = [member.owned for member in live]
    most = -(-PARTITIONS // len(live))
    return (
        sum(map(len, owned)) == PARTITIONS
        and set().union(*owned) == set(range(PARTITIONS))
        and all(len(partitions) <= most for partitions in owned)
    )


CLIENTS_AND_STRATEGIES = [
    ("confluent", "range"),
    ("confluent", "cooperative-sticky"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "sticky"),
    ("kafka-python", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "sticky"),
    *(
        (client, strategy)
        for client in OWN_CLIENTS
        for strategy in ("range", "roundrobin", "sticky", "cooperative-sticky")
    ),
]


@pytest.mark.parametrize(("client", "strategy"), CLIENTS_AND_STRATEGIES)
def test_members_come_and_go_and_no_record_is_skipped(
    group_broker: BrokerProcess,
    topic_name: str,
    members: list[MemberProcess],
    client: str,
    strategy: str,
) -> None:
    make_topic(group_broker, topic_name)
    feed = Feed(group_broker.bootstrap, topic_name)
    options = MemberOptions(
        client, group_broker.bootstrap, topic_name, topic_name, strategy, session_timeout_ms=4000
    )

    def one_more() -> MemberProcess:
        members.append(MemberProcess(options))
        return members[-1]

    def all_read(live: list[MemberProcess]) -> None:
        feed.round()
        eventually(lambda: settled(live), WITHIN_S)
        eventually(lambda: consumed(members) == feed.everything, WITHIN_S)

    first = one_more()
    all_read([first])
    second = one_more()
    all_read([first, second])
    third, fourth = one_more(), one_more()
    all_read([first, second, third, fourth])
    first.leave()
    all_read([second, third, fourth])
    third.kill()
    all_read([second, fourth])
    for member in (second, fourth):
        member.leave()
    assert overlaps(members) == []


def described(broker: BrokerProcess, group: str) -> ConsumerGroupState:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(WITHIN_S).state


@with_each_client
def test_static_member_restarts_without_a_rebalance(
    group_broker: BrokerProcess, topic_name: str, members: list[MemberProcess], client: str
) -> None:
    make_topic(group_broker, topic_name)
    feed = Feed(group_broker.bootstrap, topic_name)

    def start(instance: str) -> MemberProcess:
        options = MemberOptions(
            client,
            group_broker.bootstrap,
            topic_name,
            topic_name,
            "range",
            session_timeout_ms=20_000,
            instance=instance,
        )
        members.append(MemberProcess(options))
        return members[-1]

    one, two = start("one"), start("two")
    feed.round()
    eventually(lambda: settled([one, two]), WITHIN_S)
    eventually(lambda: consumed(members) == feed.everything, WITHIN_S)
    assignments = len(one.events_of("assigned"))  # of all members, whenever there is a rebalance
    before = two.owned
    two.kill()
    again = start("two")
    feed.round()
    eventually(lambda: consumed(members) == feed.everything, WITHIN_S)
    assert again.owned == before
    assert len(one.events_of("assigned")) == assignments, "the other member noticed"
    assert described(group_broker, topic_name) is ConsumerGroupState.STABLE


def commit(broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset + index) for index in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def commit_with_tidelog(broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    with tidelog.client.Consumer(bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
        consumer.commit(
            {
                tidelog.client.TopicPartition(topic, index): offset + index
                for index in range(PARTITIONS)
            }
        )


def committed(broker: BrokerProcess, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    found = [place.offset for place in consumer.committed(places, timeout=WITHIN_S)]
    consumer.close()
    return found


def committed_by_tidelog(broker: BrokerProcess, group: str, topic: str) -> list[int]:
    places = [tidelog.client.TopicPartition(topic, index) for index in range(PARTITIONS)]
    with tidelog.client.Consumer(bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
        found = consumer.committed(places)
    return [place.offset if place else -1001 for place in map(found.get, places)]


@pytest.mark.parametrize(
    ("write", "read"),
    [(commit, committed), (commit_with_tidelog, committed_by_tidelog)],
    ids=["confluent", "tidelog"],
)
def test_commits_survive_kill_minus_nine(
    group_broker: BrokerProcess,
    topic_name: str,
    write: Callable[[BrokerProcess, str, str, int], None],
    read: Callable[[BrokerProcess, str, str], list[int]],
) -> None:
    make_topic(group_broker, topic_name)
    for number in range(5):
        write(group_broker, f"g{number}", topic_name, number * 100)
    write(group_broker, "g0", topic_name, 7000)
    group_broker.kill()
    group_broker.start()
    for number in range(5):
        base = 7000 if number == 0 else number * 100
        expected = [base + index for index in range(PARTITIONS)]
        assert read(group_broker, f"g{number}", topic_name) == expected


@with_each_client
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_group_goes_on_after_the_broker_restarts(
    group_broker: BrokerProcess,
    topic_name: str,
    members: list[MemberProcess],
    end: str,
    client: str,
) -> None:
    make_topic(group_broker, topic_name)
    feed = Feed(group_broker.bootstrap, topic_name)
    options = MemberOptions(client, group_broker.bootstrap, "g", topic_name, "range")
    members += [MemberProcess(options), MemberProcess(options)]
    feed.round()
    eventually(lambda: settled(members), WITHIN_S)
    all_committed = [feed.count] * PARTITIONS
    eventually(lambda: committed(group_broker, "g", topic_name) == all_committed, WITHIN_S)
    if end == "kill":
        group_broker.kill()
    else:
        group_broker.stop()
    group_broker.start()
    feed.round()
    eventually(lambda: consumed(members) == feed.everything, WITHIN_S)
    for member in members:
        member.leave()
    first_round = [
        (event["partition"], event["offset"])
        for member in members
        for event in member.events
        if event["what"] == "record" and event["offset"] < ROUND
    ]
    assert len(first_round) == len(set(first_round)), "what was committed came again"


@with_each_client
def test_kafka_admin_tools_see_describe_and_delete_groups(
    group_broker: BrokerProcess, topic_name: str, members: list[MemberProcess], client: str
) -> None:
    make_topic(group_broker, topic_name)
    options = MemberOptions(client, group_broker.bootstrap, "live", topic_name, "range")
    members.append(MemberProcess(options))
    eventually(lambda: settled(members), WITHIN_S)
    commit(group_broker, "idle", topic_name, 5)
    admin = AdminClient({"bootstrap.servers": group_broker.bootstrap})
    listed = {row.group_id: row.state for row in admin.list_consumer_groups().result().valid}
    assert listed == {"live": ConsumerGroupState.STABLE, "idle": ConsumerGroupState.EMPTY}
    description = admin.describe_consumer_groups(["live"])["live"].result()
    (member,) = description.members
    assert {place.partition for place in member.assignment.topic_partitions} == set(
        range(PARTITIONS)
    )
    assert [description.coordinator.id] == list(admin.list_topics(timeout=WITHIN_S).brokers)
    deletions = admin.delete_consumer_groups(["live", "idle"])
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        deletions["live"].result()
    deletions["idle"].result()
    assert committed(group_broker, "idle", topic_name) == [-1001] * PARTITIONS
