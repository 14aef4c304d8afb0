"""`tidelog transactions` against a broker: a transaction that hangs is seen, and ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.conftest import SharedBroker, StartBroker
from tests.support.console import Console
from tests.support.eventually import eventually
from tests.support.raw_batch import batch, now_ms
from tests.support.raw_client import (
    LATEST,
    RawClient,
    create_topic,
    fetch,
    list_offset,
    new_producer_id,
    produce,
)
from tests.support.txn_model import TRANSACTIONAL
from tidelog.tools.cli.main import main

WITHIN_S = 30.0
QUICK_TIMEOUTS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str], bootstrap: str) -> Console:
    return Console(capsys, "transactions", bootstrap)


@pytest.fixture
def hanging(bootstrap: str, topic: str) -> Iterator[str]:
    """The transactional id, which is the topic's name, of a transaction that is under way."""
    producer = open_transaction(bootstrap, topic)
    yield topic
    producer.abort_transaction(WITHIN_S)


def open_transaction(bootstrap: str, topic: str, **config: object) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, **config})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(WITHIN_S) == 0
    return producer


def test_transaction_under_way_is_listed_and_described(console: Console, hanging: str) -> None:
    (listed,) = [row for row in console("list") if row["TransactionalId"] == hanging]
    assert listed["TransactionState"] == "Ongoing"
    (described,) = console("describe", "--transactional-id", hanging)
    assert described["TopicPartitions"] == f"{hanging}-0"
    assert described["ProducerId"] == listed["ProducerId"]
    assert described["TransactionTimeoutMs"] == "60000"
    assert 0 <= int(described["TransactionDurationMs"]) < 60_000
    (producer,) = console("describe-producers", "--topic", hanging, "--partition", "0")
    assert producer["ProducerId"] == listed["ProducerId"]
    assert producer["CurrentTransactionStartOffset"] == "0"


def test_list_can_be_narrowed(console: Console, hanging: str) -> None:
    ids = [row["TransactionalId"] for row in console("list", "--duration-filter", "3600000")]
    assert hanging not in ids
    ids = [row["TransactionalId"] for row in console("list", "--duration-filter", "0")]
    assert hanging in ids


def test_list_can_be_narrowed_by_a_pattern(console: Console, hanging: str) -> None:
    """Against an Apache Kafka: of 4.1 or later."""
    listed = console("list", "--transactional-id-pattern", f"{hanging[:-1]}.")
    assert [row["TransactionalId"] for row in listed] == [hanging]
    listed = console("list", "--transactional-id-pattern", hanging[:-1])
    assert listed == []


def test_pattern_that_is_none_is_an_error(console: Console) -> None:
    console("list", "--transactional-id-pattern", "(", code=1)
    assert "INVALID_REGULAR_EXPRESSION" in console.errors


def test_brokers_may_be_named_after_the_verb(
    capsys: pytest.CaptureFixture[str], bootstrap: str
) -> None:
    assert main(["transactions", "list", "--bootstrap-server", bootstrap]) == 0
    assert capsys.readouterr().out.startswith("TransactionalId")


def test_address_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "list", "--bootstrap-server", "not an address"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_unknown_id_and_unknown_partition_are_errors(console: Console, topic: str) -> None:
    console("describe", "--transactional-id", "nobody's", code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in console.errors
    console("describe-producers", "--topic", topic, "--partition", "7", code=1)
    assert f"{topic}-7" in console.errors


def test_transaction_is_seen_while_it_hangs_and_aborted_at_its_timeout(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(QUICK_TIMEOUTS)
    console = Console(capsys, "transactions", broker.bootstrap)
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "t")
        abandoned = open_transaction(broker.bootstrap, "t", **{"transaction.timeout.ms": 8_000})
        produce(client, "t", batch(b"behind it"))
        assert fetch(client, "t", isolation_level=1).last_stable_offset == 0
        (row,) = console("list", "--duration-filter", "0")
        assert (row["TransactionalId"], row["TransactionState"]) == ("t", "Ongoing")
        eventually(lambda: fetch(client, "t", isolation_level=1).last_stable_offset == 3)
        (row,) = console("describe", "--transactional-id", "t")
        assert row["TransactionState"] == "CompleteAbort"
        assert row["TransactionDurationMs"] == "None" or int(row["TransactionDurationMs"]) >= 0
    del abandoned


class TestOneThatNobodyWillEnd:
    """As old brokers let it come about: records of a transaction unknown to any coordinator."""

    @pytest.fixture
    def stuck(
        self, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
    ) -> Iterator[tuple[Console, RawClient]]:
        broker = start_broker(
            QUICK_TIMEOUTS | {"transaction.partition.verification.enable": "false"}
        )
        with RawClient(broker.bootstrap) as client:
            create_topic(client, "t")
            producer_id, epoch = new_producer_id(client)
            records = batch(
                b"lost",
                attributes=TRANSACTIONAL,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                base_timestamp=now_ms() - 3_600_000,
            )
            row = produce(client, "t", records, transactional_id="gone", acks=-1)
            assert row.error_code == 0, row
            yield Console(capsys, "transactions", broker.bootstrap), client

    def test_it_is_found_and_aborted(self, stuck: tuple[Console, RawClient]) -> None:
        console, client = stuck
        (found,) = console("find-hanging")
        assert (found["Topic"], found["Partition"], found["StartOffset"]) == ("t", "0", "0")
        assert found["Duration(min)"] == "60"
        assert console("find-hanging", "--max-transaction-timeout", "61") == []
        console("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert console("find-hanging", "--topic", "t") == []
        end = list_offset(client, "t", LATEST).offset
        assert fetch(client, "t", isolation_level=1).last_stable_offset == end

    def test_it_can_be_named_by_its_producer(self, stuck: tuple[Console, RawClient]) -> None:
        console, _ = stuck
        (found,) = console("find-hanging", "--broker-id", "0")
        named = ("--producer-id", found["ProducerId"], "--producer-epoch", found["ProducerEpoch"])
        place = ("--topic", "t", "--partition", "0")
        console("abort", *place, *named, code=1)
        assert "--coordinator-epoch" in console.errors
        console("abort", *place, *named, "--coordinator-epoch", found["CoordinatorEpoch"])
        assert console("find-hanging") == []

    def test_offset_where_nothing_begins_is_an_error(
        self, stuck: tuple[Console, RawClient]
    ) -> None:
        console, _ = stuck
        console("abort", "--topic", "t", "--partition", "0", "--start-offset", "9", code=1)
        assert "no open transaction" in console.errors
        console("find-hanging", "--partition", "0", code=1)
        assert "--topic" in console.errors


def test_transaction_that_its_coordinator_will_end_does_not_hang(
    console: Console, broker: SharedBroker, topic: str
) -> None:
    producer = open_transaction(broker.bootstrap, topic)
    rows = console("find-hanging", "--topic", topic, "--max-transaction-timeout", "-1")
    assert rows == []
    producer.abort_transaction(WITHIN_S)
