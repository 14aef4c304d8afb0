"""Kafka's own tools for groups and transactions, of both releases, against tidelog."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION, jars_or_reason
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.group_process import MemberOptions, MemberProcess
from tests.support.raw_batch import batch, now_ms
from tests.support.raw_client import RawClient, create_topic, fetch, new_producer_id, produce
from tests.support.txn_model import TRANSACTIONAL

CACHE = Path(__file__).resolve().parents[2] / ".bench"
TOOL_TIMEOUT_S = 120
WITHIN_S = 30.0
PARTITIONS = 3
RECORDS = 10  # a partition
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # As before 3.6, so that a transaction can come about that no coordinator knows of.
    "transaction.partition.verification.enable": "false",
}

Row = dict[str, str]


class ToolFailed(AssertionError):
    pass


class Tools:
    def __init__(self, libs: Path, bootstrap: str) -> None:
        self._libs = libs
        self._bootstrap = bootstrap

    def groups(self, *arguments: str) -> str:
        name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        return self._run(name, *arguments)

    def transactions(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.TransactionsCommand", *arguments)

    def produce_in_transactions(self, topic: str, records: int) -> None:
        """Kafka's own producer; a transaction takes a tenth of a second."""
        self._java(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", "10"),
            *("--throughput", str(records), "--transactional-id", topic),
            *("--transaction-duration-ms", "100"),
            *("--producer-props", f"bootstrap.servers={self._bootstrap}"),
        )

    def _run(self, tool: str, *arguments: str) -> str:
        return self._java(tool, "--bootstrap-server", self._bootstrap, *arguments)

    def _java(self, tool: str, *arguments: str) -> str:
        done = subprocess.run(
            ["java", "-Xmx256m", "-cp", f"{self._libs}/*", tool, *arguments],
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        if done.returncode or "Error:" in done.stdout:
            raise ToolFailed(done.stdout + done.stderr)
        return done.stdout


def rows(output: str) -> list[Row]:
    """A table by its headers; cells hold no spaces."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def rows_of(output: str, *headers: str) -> list[Row]:
    """As `rows`, for tables that come after remarks, or (3.9) without ends of lines."""
    words = output.split()
    starts = [i for i in range(len(words)) if tuple(words[i : i + len(headers)]) == headers]
    cells = words[starts[0] + len(headers) :]
    width = len(headers)
    return [
        dict(zip(headers, cells[start : start + width], strict=True))
        for start in range(0, len(cells), width)
    ]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS) as process:
        yield process


@pytest.fixture(scope="module", params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def tools(request: pytest.FixtureRequest, broker: BrokerProcess) -> Tools:
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, request.param)
    if isinstance(libs, str):
        pytest.skip(libs)
    return Tools(libs, broker.bootstrap)


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str) -> str:
    with RawClient(broker.bootstrap) as client:
        create_topic(client, topic_name, PARTITIONS)
        for partition in range(PARTITIONS):
            produce(client, topic_name, batch(*(b"v" for _ in range(RECORDS))), partition)
    return topic_name


@pytest.fixture
def idle_group(broker: BrokerProcess, topic: str) -> str:
    """Without members; it has committed 4, 5 and 6."""
    commit(broker.bootstrap, topic, topic, [4, 5, 6])
    return topic


def commit(bootstrap: str, group: str, topic: str, offsets: list[int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    found = [place.offset for place in consumer.committed(places, timeout=WITHIN_S)]
    consumer.close()
    return found


class TestConsumerGroups:
    @pytest.fixture
    def member(self, broker: BrokerProcess, topic: str) -> Iterator[MemberProcess]:
        """The one member, static, of a group that is called like its topic."""
        options = MemberOptions(
            "confluent", broker.bootstrap, topic, topic, "range", instance="first"
        )
        member = MemberProcess(options)
        eventually(
            lambda: (
                sum(event["what"] == "record" for event in member.events) == PARTITIONS * RECORDS
            ),
            WITHIN_S,
        )
        eventually(lambda: committed(broker.bootstrap, topic, topic) == [RECORDS] * PARTITIONS)
        yield member
        member.kill()

    def test_groups_are_listed_with_state_and_type(self, tools: Tools, idle_group: str) -> None:
        assert idle_group in tools.groups("--list").split()
        listed = {row["GROUP"]: row for row in rows(tools.groups("--list", "--state", "--type"))}
        assert listed[idle_group]["STATE"] == "Empty"
        assert listed[idle_group]["TYPE"] == "Classic"
        stable = rows(tools.groups("--list", "--state", "Stable"))
        assert idle_group not in [row["GROUP"] for row in stable]

    def test_offsets_and_lag_of_a_group_without_members(
        self, tools: Tools, idle_group: str
    ) -> None:
        described = rows(tools.groups("--describe", "--group", idle_group, "--offsets"))
        found = {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LAG"]) for row in described}
        assert found == {"0": ("4", "6"), "1": ("5", "5"), "2": ("6", "4")}

    def test_members_and_state_of_a_live_group(
        self, tools: Tools, topic: str, member: MemberProcess
    ) -> None:
        (row,) = rows(tools.groups("--describe", "--group", topic, "--members", "--verbose"))
        assert row["GROUP-INSTANCE-ID"] == "first"
        assert row["#PARTITIONS"] == str(PARTITIONS)
        assert row["HOST"] == "/127.0.0.1"
        described = tools.groups("--describe", "--group", topic, "--state")
        assert "Stable" in described
        assert "range" in described
        offsets = rows(tools.groups("--describe", "--group", topic))
        assert {row["LAG"] for row in offsets} == {"0"}
        assert {row["CONSUMER-ID"] for row in offsets} == {row["CONSUMER-ID"]}

    @pytest.mark.parametrize(
        ("how", "expected"),
        [
            (("--to-earliest",), [0, 0, 0]),
            (("--to-latest",), [10, 10, 10]),
            (("--shift-by", "-2"), [2, 3, 4]),
            (("--to-offset", "7"), [7, 7, 7]),
            (("--to-datetime", "2020-01-01T00:00:00.000"), [0, 0, 0]),
            (("--by-duration", "PT0S"), [10, 10, 10]),
        ],
        ids=lambda value: value[0] if isinstance(value, tuple) else "",
    )
    def test_offsets_are_reset(
        self,
        tools: Tools,
        broker: BrokerProcess,
        idle_group: str,
        how: tuple[str, ...],
        expected: list[int],
    ) -> None:
        arguments = ("--reset-offsets", "--group", idle_group, "--topic", idle_group, *how)
        printed = tools.groups(*arguments, "--dry-run")
        planned = rows_of(printed, "GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
        assert sorted(int(row["NEW-OFFSET"]) for row in planned) == expected
        assert committed(broker.bootstrap, idle_group, idle_group) == [4, 5, 6]
        tools.groups(*arguments, "--execute")
        assert committed(broker.bootstrap, idle_group, idle_group) == expected

    def test_live_group_is_neither_reset_nor_deleted(
        self, tools: Tools, broker: BrokerProcess, topic: str, member: MemberProcess
    ) -> None:
        reset = ("--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest")
        with pytest.raises(ToolFailed, match="inactive"):
            tools.groups(*reset, "--execute")
        with pytest.raises(ToolFailed, match="not empty"):
            tools.groups("--delete", "--group", topic)
        assert committed(broker.bootstrap, topic, topic) == [RECORDS] * PARTITIONS

    def test_offsets_are_deleted(
        self, tools: Tools, broker: BrokerProcess, idle_group: str
    ) -> None:
        place = ("--group", idle_group, "--topic", f"{idle_group}:1")
        printed = tools.groups("--delete-offsets", *place)
        (row,) = rows_of(printed, "TOPIC", "PARTITION", "STATUS")
        assert row["STATUS"] == "Successful"
        assert committed(broker.bootstrap, idle_group, idle_group) == [4, -1001, 6]

    def test_group_is_deleted(self, tools: Tools, idle_group: str) -> None:
        assert "successful" in tools.groups("--delete", "--group", idle_group)
        assert idle_group not in tools.groups("--list").split()


class TestTransactions:
    @pytest.fixture
    def ongoing(self, broker: BrokerProcess, topic: str) -> Iterator[str]:
        """A transactional id, called like its topic, that is at work in partition 0."""
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        assert producer.flush(WITHIN_S) == 0
        yield topic
        producer.abort_transaction(WITHIN_S)

    @pytest.fixture
    def hanging(self, broker: BrokerProcess, topic: str) -> str:
        """A topic whose partition 0 holds a transaction that no coordinator knows of."""
        with RawClient(broker.bootstrap) as client:
            producer_id, epoch = new_producer_id(client)
            records = batch(
                b"lost",
                attributes=TRANSACTIONAL,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                base_timestamp=now_ms() - 3_600_000,
            )
            row = produce(client, topic, records, transactional_id=topic, acks=-1)
            assert row.error_code == 0, row
        return topic

    def test_transaction_under_way_is_listed_and_described(
        self, tools: Tools, ongoing: str
    ) -> None:
        listed = {row["TransactionalId"]: row for row in rows(tools.transactions("list"))}
        assert listed[ongoing]["TransactionState"] == "Ongoing"
        (row,) = rows(tools.transactions("describe", "--transactional-id", ongoing))
        assert row["ProducerId"] == listed[ongoing]["ProducerId"]
        assert row["TransactionState"] == "Ongoing"
        assert row["TopicPartitions"] == f"{ongoing}-0"
        assert int(row["TransactionDurationMs"]) >= 0

    def test_producers_of_a_partition_are_described(self, tools: Tools, ongoing: str) -> None:
        place = ("--topic", ongoing, "--partition", "0")
        (row,) = rows(tools.transactions("describe-producers", *place))
        assert row["CurrentTransactionStartOffset"] == str(RECORDS)

    def test_transaction_that_its_coordinator_will_end_does_not_hang(
        self, tools: Tools, ongoing: str
    ) -> None:
        found = tools.transactions("find-hanging", "--topic", ongoing)
        assert rows(found) == []

    def test_hanging_transaction_is_found_and_aborted(
        self, tools: Tools, broker: BrokerProcess, hanging: str
    ) -> None:
        (row,) = rows(tools.transactions("find-hanging", "--broker-id", "0"))
        assert (row["Topic"], row["Partition"]) == (hanging, "0")
        assert row["StartOffset"] == str(RECORDS)
        place = ("--topic", hanging, "--partition", "0", "--start-offset", row["StartOffset"])
        tools.transactions("abort", *place)
        assert rows(tools.transactions("find-hanging", "--broker-id", "0")) == []
        with RawClient(broker.bootstrap) as client:
            found = fetch(client, hanging, isolation_level=1)
            assert found.last_stable_offset == found.high_watermark == RECORDS + 2

    def test_transactions_of_kafkas_own_producer_are_committed(
        self, tools: Tools, broker: BrokerProcess, topic: str
    ) -> None:
        """4.3 speaks transaction.version 2, 3.9 does not."""
        tools.produce_in_transactions(topic, 1_000)
        (row,) = rows(tools.transactions("describe", "--transactional-id", topic))
        assert row["TransactionState"] == "CompleteCommit"
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": f"{topic}-reader",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(topic, index, RECORDS) for index in range(PARTITIONS)])
        found = 0
        deadline = time.monotonic() + WITHIN_S
        while found < 1_000 and time.monotonic() < deadline:
            found += sum(each.error() is None for each in consumer.consume(1_000, 0.2))
        consumer.close()
        assert found == 1_000
