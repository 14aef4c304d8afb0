"""`tidelog explain` on a real broker, with incidents staged in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import READY_LINE, BrokerProcess
from tests.support.eventually import eventually
from tidelog.client import Admin, Consumer, NewTopic, Producer
from tidelog.tools.cli.main import main
from tidelog.types import TopicPartition

pytestmark = pytest.mark.integration

SETTINGS = {
    "tidelog.metrics.listener": "http://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
}
MEMBER = """
import sys
from tidelog.client import Consumer
with Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
               "session.timeout.ms": 1000, "heartbeat.interval.ms": 200}) as consumer:
    consumer.subscribe([sys.argv[3]])
    while True:
        consumer.poll(0.1)
        if consumer.assignment():
            print("assigned", flush=True)
"""

Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(SETTINGS)


def servers(broker: BrokerProcess) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap}


@pytest.fixture
def explain(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Explain:
    ready = READY_LINE.search(broker.stdout_path.read_text())
    assert ready is not None
    events = ready["metrics"].removesuffix("/metrics")

    def run(*arguments: str) -> dict[str, Any]:
        asked = ["explain", "-b", broker.bootstrap, "-o", "json", *arguments, "--events", events]
        assert main(asked) == 0, capsys.readouterr().err
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def finding(found: dict[str, Any], cause: str) -> dict[str, Any]:
    causes = {each["cause"]: each for each in found["findings"]}
    assert cause in causes, found
    row: dict[str, Any] = causes[cause]
    return row


def has(explain: Explain, cause: str, *arguments: str) -> Callable[[], bool]:
    return lambda: any(each["cause"] == cause for each in explain(*arguments)["findings"])


def create(broker: BrokerProcess, name: str, **configs: str) -> TopicPartition:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(servers(broker)) as admin:
        admin.create_topics([NewTopic(name, 1, 1, configs=settings)])[name].get()
    return TopicPartition(name, 0)


def transactional(broker: BrokerProcess, name: str, **config: object) -> Producer:
    producer = Producer({**servers(broker), "transactional.id": name, "linger.ms": 0, **config})
    producer.init_transactions()
    return producer


def test_an_open_transaction_is_named_and_an_aborted_record_is_explained(
    broker: BrokerProcess, explain: Explain
) -> None:
    create(broker, "orders")
    with transactional(broker, "shop") as producer:
        producer.begin_transaction()
        producer.send("orders", value=b"1")
        producer.flush()
        held = finding(explain("partition", "orders", "0"), "open-transaction")
        assert "transactional id shop" in held["why"]
        assert (
            "tidelog txn abort --topic orders --partition 0 --start-offset 0" in held["next_step"]
        )
        waits = finding(explain("record", "orders", "0", "0"), "open-transaction")
        assert waits["why"].endswith("it belongs to that transaction")
        opened = finding(explain("txn", "shop"), "open-transaction")
        assert opened["what"] == "a transaction is open in orders-0"
        producer.abort_transaction()
        eventually(has(explain, "aborted-by-producer", "txn", "shop"))
        hidden = finding(explain("record", "orders", "0", "0"), "transaction-aborted")
        assert "the marker is at offset 1" in hidden["why"]
        finding(explain("record", "orders", "0", "1"), "control-record")
        with producer.transaction():
            producer.send("orders", value=b"2")
        eventually(has(explain, "visible", "record", "orders", "0", "2"))
        assert "committed" in finding(explain("record", "orders", "0", "2"), "visible")["why"]
    beyond = finding(explain("record", "orders", "0", "100"), "not-written")
    assert "the high watermark is 4" in beyond["what"]


def test_a_transaction_that_timed_out_and_a_producer_that_is_fenced(
    broker: BrokerProcess, explain: Explain
) -> None:
    create(broker, "orders")
    slow = transactional(broker, "slow", **{"transaction.timeout.ms": 300})
    with slow:
        slow.begin_transaction()
        slow.send("orders", value=b"1")
        slow.flush()
        eventually(has(explain, "transaction-timed-out", "txn", "slow"))
        hidden = finding(explain("record", "orders", "0", "0"), "transaction-timed-out")
        assert "did not end it within 300ms" in hidden["why"]
    with transactional(broker, "twice"), transactional(broker, "twice"):
        fenced = finding(explain("txn", "twice"), "producer-fenced")
        assert "epoch 0 can write no more" in fenced["what"]
        assert "the epoch is 1 now" in fenced["why"]


def test_records_deleted_by_request_by_retention_and_by_compaction(
    broker: BrokerProcess, explain: Explain
) -> None:
    asked = create(broker, "asked")
    create(broker, "old", retention_ms="1", segment_bytes="400")
    create(
        broker,
        "keyed",
        cleanup_policy="compact",
        segment_bytes="400",
        min_cleanable_dirty_ratio="0.01",
    )
    with Producer({**servers(broker), "linger.ms": 0, "client.id": "writer"}) as producer:
        for number in range(5):
            for topic in ("asked", "old", "keyed"):
                producer.send(topic, key=b"k", value=b"%0150d" % number).result(60)
    with Admin({**servers(broker), "client.id": "janitor"}) as admin:
        admin.delete_records({asked: 3})[asked].get()
    gone = finding(explain("record", "asked", "0", "2"), "deleted-by-request")
    assert "client janitor" in gone["why"]
    finding(explain("record", "asked", "0", "3"), "visible")
    eventually(has(explain, "deleted-by-retention", "record", "old", "0", "0"))
    expired = finding(explain("record", "old", "0", "0"), "deleted-by-retention")
    assert expired["why"] == "its segment was older than retention.ms=1"
    eventually(has(explain, "compacted", "record", "keyed", "0", "0"))

    def is_dated() -> bool:
        """The event of the cleaning follows it."""
        found = explain("record", "keyed", "0", "0")
        if finding(found, "compacted")["since"] is None:
            return False
        return bool(found["timeline"][0]["event"] == "log-cleaned")

    eventually(is_dated)


def test_the_epochs_of_a_group_of_the_consumer_protocol(
    broker: BrokerProcess, explain: Explain
) -> None:
    create(broker, "orders")
    reading = {**servers(broker), "group.id": "billing", "group.protocol": "consumer"}
    with Consumer(reading) as consumer:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.1)
        member = consumer.group_metadata().member_id
    found = explain("group", "billing")
    assert [each["text"] for each in found["timeline"]] == [
        f"epoch 2 began, 1 member: {member} joins",
        f"members left: {member}: it left",
        f"epoch 3 began, 0 members: {member} left: it left",
    ]


def test_a_member_that_fell_silent_and_one_that_commits_nothing(
    broker: BrokerProcess, explain: Explain
) -> None:
    create(broker, "orders")
    with Producer(servers(broker)) as producer:
        producer.send("orders", value=b"1")
    member = subprocess.Popen(
        [sys.executable, "-c", MEMBER, broker.bootstrap, "billing", "orders"],
        stdout=subprocess.PIPE,
    )
    try:
        assert member.stdout is not None
        assert member.stdout.readline() == b"assigned\n"
    finally:
        member.kill()
        member.communicate()
    eventually(has(explain, "member-silent", "group", "billing"))
    found = explain("group", "billing")
    assert "its session timed out" in finding(found, "member-silent")["why"]
    assert "member-left" in [each["event"] for each in found["timeline"]]
    reading = {"group.id": "idle", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer({**servers(broker), **reading}) as consumer:
        consumer.subscribe(["orders"])
        read: list[object] = []

        def has_read() -> bool:
            read.extend(consumer.poll(0.2))
            return bool(read)

        eventually(has_read)
        stuck = finding(explain("group", "idle", "--interval", "50ms"), "commits-nothing")
        assert "has committed nothing" in stuck["why"]
        consumer.commit()
    with Producer(servers(broker)) as producer:
        producer.send("orders", value=b"2")
    assert finding(explain("group", "idle"), "no-members")["what"] == (
        "the group has a lag of 1 in orders-0"
    )
    finding(explain("group", "nobody"), "no-such-group")
    finding(explain("txn", "nobody"), "unknown-transactional-id")


def test_the_terminal_gets_a_timeline_and_what_is_not_known(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    create(broker, "orders")
    log = broker.stderr_path
    asked = ["explain", "-b", broker.bootstrap, "partition", "orders", "0"]
    assert main([*asked, "--log", str(log)]) == 0
    text = capsys.readouterr().out
    assert "remark: broker " in text
    assert "timeline" in text
    assert "topic created" in text
    assert main([*asked, "--events", "http://127.0.0.1:1"]) == 0
    text = capsys.readouterr().out
    assert "not known" in text
    assert "http://127.0.0.1:1" in text
    assert main(["explain", "-b", broker.bootstrap, "partition", "orders", "7"]) == 1
    assert "has 1 partitions" in capsys.readouterr().err
