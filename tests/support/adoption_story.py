"""Twenty topics of different configurations, what a broker says of them, and what it keeps.

Every partition gets records of sixty days ago and fresh ones, in segments of their own, so that
each setting decides about something. Configurations are set at creation, altered, removed and
lost with a topic that was deleted. `describe` and `read` are all that clients can see of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.support.eventually import eventually
from tests.support.raw_admin import BROKER, SET, incremental
from tests.support.raw_client import RawClient

DAY_MS: Final = 86_400_000
OLD_MS: Final = 60 * DAY_MS
TIMEOUT_S: Final = 60
BROKER_ID: Final = "1"
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
BOTH: Final = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}

# What server.properties say: it is not in the data directory, so both brokers are given it.
STATIC: Final = {
    "log.retention.ms": str(7 * DAY_MS),
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "60000",
    "auto.create.topics.enable": "false",
}
CLUSTER_WIDE: Final = {"log.retention.ms": str(14 * DAY_MS)}  # set while the broker runs
OF_THE_BROKER: Final = {"message.max.bytes": "2000000"}


class Story(NamedTuple):
    partitions: int
    configs: Mapping[str, str]  # at the end of the story


TOPICS: Final = {
    "plain": Story(1, {}),
    "for-ever": Story(1, {"retention.ms": "-1"}),
    "compacted": Story(1, COMPACTED),
    "both": Story(1, {**BOTH, "retention.ms": "-1"}),
    "both-short": Story(1, {**BOTH, "retention.ms": str(7 * DAY_MS)}),
    "by-size": Story(1, {"retention.ms": "-1", "retention.bytes": "300"}),
    "half-a-day": Story(1, {"retention.ms": str(DAY_MS // 2)}),
    "ninety-days": Story(1, {"retention.ms": str(90 * DAY_MS)}),
    "append-time": Story(1, {"message.timestamp.type": "LogAppendTime"}),
    "gzip": Story(1, {"compression.type": "gzip", "retention.ms": "-1"}),
    "small-messages": Story(1, {"max.message.bytes": "10000", "retention.ms": "-1"}),
    "flushed": Story(1, {"flush.messages": "3", "flush.ms": "1000", "retention.ms": "-1"}),
    "late-compaction": Story(1, {**COMPACTED, "min.compaction.lag.ms": str(30 * DAY_MS)}),
    "tombstones": Story(1, {**COMPACTED, "delete.retention.ms": "1000"}),
    "wide": Story(3, {"retention.ms": "-1", "segment.ms": str(DAY_MS)}),
    "grown": Story(3, {"retention.ms": "-1"}),
    "altered": Story(1, {"retention.ms": "-1", "segment.bytes": "2000000"}),
    "config-removed": Story(1, {}),
    "made-again": Story(2, COMPACTED),
    "dots.and_lines-7": Story(1, {"retention.ms": "-1", "unclean.leader.election.enable": "true"}),
}
DELETED: Final = "deleted"
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


def servers(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def tell(bootstrap: str, now_ms: int) -> None:
    """All of the story up to the stop of the broker."""
    admin = AdminClient(servers(bootstrap))
    first = dict(TOPICS)
    first["grown"] = Story(1, TOPICS["grown"].configs)
    first["altered"] = Story(1, {"retention.ms": "1000"})
    first["config-removed"] = Story(1, {"retention.ms": "1000"})
    first["made-again"] = Story(1, {"retention.ms": "1000"})
    first[DELETED] = Story(1, {"retention.ms": "1000"})
    create(admin, first)
    delete(admin, ["made-again", DELETED])
    create_when_gone(admin, "made-again")
    for future in admin.create_partitions([NewPartitions("grown", 3)]).values():
        future.result(TIMEOUT_S)
    alter(admin, ResourceType.TOPIC, "altered", dict(TOPICS["altered"].configs))
    alter(admin, ResourceType.TOPIC, "config-removed", {"retention.ms": None})
    write(bootstrap, now_ms)
    alter(admin, ResourceType.BROKER, BROKER_ID, dict(OF_THE_BROKER))
    with RawClient(bootstrap) as client:  # librdkafka knows no defaults of all brokers
        changes = [(key, SET, text) for key, text in CLUSTER_WIDE.items()]
        assert incremental(client, BROKER, "", changes) == 0
    wanted = CLUSTER_WIDE["log.retention.ms"]
    eventually(lambda: topic_configs(admin, "plain")["retention.ms"][0] == wanted, TIMEOUT_S)


def create(admin: AdminClient, topics: Mapping[str, Story]) -> None:
    new = [NewTopic(name, s.partitions, 1, config=dict(s.configs)) for name, s in topics.items()]
    for future in admin.create_topics(new).values():
        future.result(TIMEOUT_S)


def create_when_gone(admin: AdminClient, name: str) -> None:
    for _ in range(100):
        try:
            create(admin, {name: TOPICS[name]})
            return
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
            admin.list_topics(timeout=TIMEOUT_S)
    raise AssertionError(f"{name} is not gone")


def delete(admin: AdminClient, names: list[str]) -> None:
    for future in admin.delete_topics(names).values():
        future.result(TIMEOUT_S)


def alter(
    admin: AdminClient, kind: ResourceType, name: str, texts: Mapping[str, str | None]
) -> None:
    """None takes a setting away."""
    entries = [
        ConfigEntry(
            key,
            text,
            incremental_operation=AlterConfigOpType.DELETE
            if text is None
            else AlterConfigOpType.SET,
        )
        for key, text in texts.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)


def write(bootstrap: str, now_ms: int) -> None:
    """Old records, then fresh ones; keys come twice, and one is deleted."""
    for moment, timestamp_ms in (("old", now_ms - OLD_MS), ("fresh", now_ms)):
        producer = Producer({**servers(bootstrap), "linger.ms": 20})
        for topic, story in TOPICS.items():
            for partition in range(story.partitions):
                for row in range(6):
                    gone = topic == "tombstones" and row == 5
                    producer.produce(
                        topic,
                        key=f"key {row % 4}",
                        value=None if gone else f"{moment} {row} of {topic}-{partition}",
                        timestamp=timestamp_ms + row,
                        partition=partition,
                    )
        assert producer.flush(TIMEOUT_S) == 0
    till = Producer({**servers(bootstrap), "transactional.id": "till"})
    till.init_transactions(TIMEOUT_S)
    till.begin_transaction()
    till.produce("for-ever", key="paid", value="1", partition=0, timestamp=now_ms)
    till.commit_transaction(TIMEOUT_S)
    consumer = Consumer({**servers(bootstrap), "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("wide", 2, 4)], asynchronous=False)
    consumer.close()


class Described(NamedTuple):
    """What a broker says of its topics."""

    topic_ids: dict[str, str]
    partition_counts: dict[str, int]
    configs: dict[str, dict[str, list[Any]]]  # by topic and key: value, and where it comes from


def describe(bootstrap: str) -> Described:
    admin = AdminClient(servers(bootstrap))
    names = sorted(
        name for name in admin.list_topics(timeout=TIMEOUT_S).topics if name not in INTERNAL
    )
    described = admin.describe_topics(TopicCollection([*names, *INTERNAL]))
    topics = {name: future.result(TIMEOUT_S) for name, future in described.items()}
    return Described(
        {name: url_safe(str(topic.topic_id)) for name, topic in topics.items()},
        {name: len(topic.partitions) for name, topic in topics.items()},
        {name: topic_configs(admin, name) for name in topics},
    )


def url_safe(text: str) -> str:
    """librdkafka shows ids in the other alphabet."""
    return text.replace("+", "-").replace("/", "_")


def topic_configs(admin: AdminClient, name: str) -> dict[str, list[Any]]:
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    entries = future.result(TIMEOUT_S)
    return {key: [each.value, ConfigSource(each.source).name] for key, each in entries.items()}


def read(bootstrap: str, counts: Mapping[str, int]) -> dict[str, list[list[Any]]]:
    """Every record of every partition, by the name of its folder."""
    consumer = Consumer(
        {
            **servers(bootstrap),
            "group.id": "reads all",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    places = [
        TopicPartition(topic, number, 0)
        for topic, count in counts.items()
        if topic not in INTERNAL
        for number in range(count)
    ]
    consumer.assign(places)
    found: dict[str, list[list[Any]]] = {f"{each.topic}-{each.partition}": [] for each in places}
    ended: set[str] = set()
    for _ in range(100_000):
        if len(ended) == len(places):
            break
        message = consumer.poll(0.5)
        if message is None:
            continue
        folder = f"{message.topic()}-{message.partition()}"
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error
            ended.add(folder)
            continue
        key, value = message.key(), message.value()
        texts = [each and each.decode() for each in (key, value)]
        found[folder].append([message.offset(), message.timestamp()[1], *texts])
    consumer.close()
    assert len(ended) == len(places), sorted(set(found) - ended)
    return found
