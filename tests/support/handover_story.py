"""What is written to a broker before its directory is handed over, and all that is read back.

All codecs, headers, nulls; transactions committed and aborted; a compacted topic with all of that;
a topic with the broker's time; committed offsets of a group and of a lone consumer. Everything by
librdkafka.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.eventually import eventually

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL_SEGMENTS = {"segment.bytes": "2500", "index.interval.bytes": "300"}
NOW_MS = 1_700_000_000_000
PARTITIONS = (("codecs", 0), ("orders", 0), ("orders", 1), ("accounts", 0), ("stamped", 0))
GROUPS = ("readers", "simple")
POLL_S = 0.5
POLLS_MAX = 120


class Everything(NamedTuple):
    """What clients can see of a broker."""

    watermarks: dict[tuple[str, int], tuple[int, int]]
    records: dict[tuple[str, int], list[tuple[Any, ...]]]
    committed_records: dict[tuple[str, int], list[tuple[Any, ...]]]
    group_offsets: dict[str, list[tuple[Any, ...]]]


def read_everything(bootstrap: str) -> Everything:
    reader = Consumer(settings(bootstrap, "read_uncommitted"))
    watermarks = {}
    for topic, partition in PARTITIONS:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), 30)
        watermarks[topic, partition] = (low, high)
    reader.close()
    return Everything(
        watermarks,
        read_records(bootstrap, "read_uncommitted"),
        read_records(bootstrap, "read_committed"),
        {group: group_offsets(bootstrap, group) for group in GROUPS},
    )


def servers(bootstrap: str) -> dict[str, Any]:
    """Clients outlive the brokers of this story, and would complain."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def settings(bootstrap: str, isolation: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "group.id": "reads everything",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }


def read_records(bootstrap: str, isolation: str) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    consumer = Consumer(settings(bootstrap, isolation))
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in PARTITIONS])
    found: dict[tuple[str, int], list[tuple[Any, ...]]] = {key: [] for key in PARTITIONS}
    ended = set()
    for _ in range(POLLS_MAX * 20):
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        key = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error
            ended.add(key)
            if len(ended) == len(PARTITIONS):
                break
            continue
        found[key].append(
            (
                message.offset(),
                message.timestamp(),
                message.key(),
                message.value(),
                message.headers(),
            )
        )
    consumer.close()
    assert len(ended) == len(PARTITIONS), f"only {ended} came to their end"
    return found


def group_offsets(bootstrap: str, group: str) -> list[tuple[Any, ...]]:
    admin = AdminClient({**servers(bootstrap)})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    rows = future.result(30).topic_partitions
    return sorted((row.topic, row.partition, row.offset, row.metadata) for row in rows)


def topics() -> list[NewTopic]:
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "100000000",
        **SMALL_SEGMENTS,
    }
    return [
        NewTopic("codecs", 1, 1, config=SMALL_SEGMENTS),
        NewTopic("orders", 2, 1, config=SMALL_SEGMENTS),
        NewTopic("accounts", 1, 1, config=compacted),
        NewTopic("stamped", 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
    ]


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({**servers(bootstrap)})
    for future in admin.create_topics(topics()).values():
        future.result(30)


def fill(bootstrap: str) -> None:
    create_topics(bootstrap)
    write_codecs(bootstrap)
    write_transactions(bootstrap)
    write_accounts(bootstrap)
    wait_for_markers(bootstrap)
    commit_offsets(bootstrap)


def write_codecs(bootstrap: str) -> None:
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "compression.type": codec,
                "linger.ms": 50,
            }
        )
        for row in range(12):
            producer.produce(
                "codecs",
                key=None if row % 5 == 4 else f"key {number}-{row}",
                value=None if row % 7 == 6 else f"{codec} value {row} ".encode() * 12 + b"\xc3\xa9",
                headers=[("trace", b"%d" % row), ("empty", None)] if row % 3 == 0 else [],
                timestamp=NOW_MS + 1000 * number + row,
                partition=0,
            )
            if row % 4 == 3:
                producer.flush(30)
        producer.produce("stamped", value=f"{codec}", partition=0)
        producer.flush(30)


def write_transactions(bootstrap: str) -> None:
    for name, ends in (("till", "ccaca"), ("web", "aacc")):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "transactional.id": name,
                "linger.ms": 20,
            }
        )
        producer.init_transactions(30)
        for number, end in enumerate(ends):
            producer.begin_transaction()
            for row in range(6):
                text = f"{name} order {number}-{row} {end} " * 4
                producer.produce(
                    "orders", value=text, partition=row % 2, timestamp=NOW_MS + 100 * number + row
                )
            if end == "c":
                producer.commit_transaction(30)
            else:
                producer.flush(30)
                producer.abort_transaction(30)


def wait_for_markers(bootstrap: str) -> None:
    """A commit returns before its markers are in the logs."""
    admin = AdminClient(servers(bootstrap))
    partitions = (("orders", 0), ("orders", 1), ("accounts", 0))
    wanted = {TopicPartition(*partition): OffsetSpec.latest() for partition in partitions}

    def ends(isolation: IsolationLevel) -> list[int]:
        answers = admin.list_offsets(wanted, isolation_level=isolation)
        return [future.result(30).offset for future in answers.values()]

    eventually(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED), 30
    )


def write_accounts(bootstrap: str) -> None:
    """In turn with every codec, and transactions between."""
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 20,
            }
        )
        for codec in CODECS
    ]
    bank = Producer({**servers(bootstrap), "transactional.id": "bank"})
    bank.init_transactions(30)
    for number in range(12):
        producer = producers[number % len(producers)]
        for account in range(6):
            if number % (account + 1) and number < 9:
                continue  # so that cleaning leaves gaps
            gone = account == 5 and number == 9
            producer.produce(
                "accounts",
                key=f"account {account}",
                value=None if gone else f"balance {number} " * 8,
                timestamp=NOW_MS + 1000 * number + account,
                partition=0,
            )
        producer.flush(30)
        transfer(bank, number)


def transfer(bank: Producer, number: int) -> None:
    """A transaction on the compacted topic; every third is aborted."""
    bank.begin_transaction()
    for account in (1, 7):
        bank.produce(
            "accounts",
            key=f"account {account}",
            value=f"transfer {number} " * 5,
            timestamp=NOW_MS + 1000 * number + 500 + account,
            partition=0,
        )
    if number % 3:
        bank.commit_transaction(30)
    else:
        bank.flush(30)
        bank.abort_transaction(30)


def commit_offsets(bootstrap: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "group.id": "readers",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe(["codecs", "orders"])
    for _ in range(40):
        consumer.poll(1.0)
    consumer.commit(asynchronous=False)
    consumer.close()
    simple = Consumer({**settings, "group.id": "simple"})
    simple.commit(offsets=[TopicPartition("codecs", 0, 7, metadata="seven")], asynchronous=False)
    simple.close()
