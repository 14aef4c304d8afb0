"""Replicas moved between the log directories of a real broker, written to and killed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.log_dirs import home, move, replicas
from tests.support.raw_admin import BROKER, SET, incremental
from tests.support.raw_batch import batch, read_batches
from tests.support.raw_client import RawClient, create_topic, fetch, new_producer_id, produce
from tests.support.segment_check import check_partition
from tidelog.errors import ErrorCode

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
VALUE_BYTES = 1000


class Writer:
    """An idempotent producer that sends one record at a time and knows which are acknowledged."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._producer = new_producer_id(client)
        self.acked = 0

    def send(self, count: int = 1) -> None:
        producer_id, epoch = self._producer
        for _ in range(count):
            value = b"%010d" % self.acked + b"." * VALUE_BYTES
            data = batch(
                value, producer_id=producer_id, producer_epoch=epoch, base_sequence=self.acked
            )
            row = produce(self._client, self._topic, data, acks=-1)
            assert row.error_code == 0, row
            self.acked += 1


def numbers(client: RawClient, topic: str) -> list[int]:
    """What a consumer reads from the start to the end."""
    found: list[int] = []
    offset = 0
    while True:
        row = fetch(client, topic, offset)
        assert row.error_code == 0, row
        batches = read_batches(bytes(row.records or b""))
        if not batches:
            return found
        for each in batches:
            found += [int((record.value or b"")[:10]) for record in each.records()]
        offset = batches[-1].last_offset + 1


@pytest.fixture
def broker(start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    dirs = ",".join(str(tmp_path / name) for name in ("d0", "d1"))
    return start_broker({"log.dirs": dirs, "log.segment.bytes": "200000"})


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "t")
        yield client


def throttle(client: RawClient, bytes_per_second: int) -> None:
    assert incremental(client, BROKER, "", [(THROTTLE, SET, str(bytes_per_second))]) == 0


def other(client: RawClient, tmp_path: Path) -> Path:
    return tmp_path / ("d1" if home(client, "t") == "d0" else "d0")


def test_a_replica_moves_there_and_back_under_writes(
    broker: BrokerProcess, client: RawClient, tmp_path: Path
) -> None:
    writer = Writer(client, "t")
    writer.send(1000)
    for _ in range(4):
        target = other(client, tmp_path)
        assert move(client, target, "t") == 0
        for _ in range(2000):
            if home(client, "t") == target.name:
                break
            writer.send()
        assert home(client, "t") == target.name
        writer.send(10)
    assert numbers(client, "t") == list(range(writer.acked))
    assert broker.stop() == 0
    check_partition(target / "t-0")
    broker.start()
    with RawClient(broker.bootstrap) as again:
        assert numbers(again, "t") == list(range(writer.acked))


def test_a_throttled_move_can_be_watched_and_cancelled(client: RawClient, tmp_path: Path) -> None:
    writer = Writer(client, "t")
    writer.send(300)
    throttle(client, 20_000)
    here, there = home(client, "t"), other(client, tmp_path)
    assert move(client, there, "t") == 0
    eventually(lambda: any(row.is_future and row.size_bytes > 0 for row in replicas(client, "t")))
    (future,) = (row for row in replicas(client, "t") if row.is_future)
    assert future.directory == there.name
    assert 0 < future.offset_lag <= 300
    assert move(client, tmp_path / here, "t") == 0
    assert [row.is_future for row in replicas(client, "t")] == [False]
    writer.send()
    assert home(client, "t") == here
    throttle(client, 1 << 40)
    assert move(client, there, "t") == 0
    eventually(lambda: home(client, "t") == there.name)
    assert numbers(client, "t") == list(range(301))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_kill_minus_nine_during_a_move_loses_and_doubles_nothing(
    broker: BrokerProcess, client: RawClient, tmp_path: Path, seed: int
) -> None:
    """Killed at another point of the move in each round; the move goes on by itself."""
    writer = Writer(client, "t")
    writer.send(400)
    throttle(client, 400_000)
    for round_number in range(4):
        with RawClient(broker.bootstrap) as admin:
            target = other(admin, tmp_path)
            assert move(admin, target, "t") == 0
            delay_s = (0.02, 0.3, 0.9, 1.6)[round_number] + 0.1 * seed
            killer = threading.Timer(delay_s, broker.kill)
            killer.start()
            writer._client = admin
            with pytest.raises((ConnectionError, AssertionError)):
                writer.send(100_000)
            killer.join()
        broker.start()
        with RawClient(broker.bootstrap) as again:
            found = numbers(again, "t")
            # The record under way may have been written, and not acknowledged.
            assert found in (list(range(writer.acked)), list(range(writer.acked + 1)))
            writer.acked = len(found)
            throttle(again, 1 << 40)
            eventually(lambda: home(again, "t") == target.name)  # noqa: B023
            assert numbers(again, "t") == found
            writer._client = again
            writer.send(5)
            throttle(again, 400_000)
    assert broker.stop() == 0
    check_partition(target / "t-0")


def test_kafka_python_moves_a_replica_and_sees_it_there(
    broker: BrokerProcess, client: RawClient, tmp_path: Path
) -> None:
    target = other(client, tmp_path)
    Writer(client, "t").send(10)
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        replica = ("t", 0, broker.broker_id)
        (code,) = admin.alter_replica_log_dirs({replica: str(target)}).values()
        assert code.errno == 0
        eventually(lambda: home(client, "t") == target.name)
        assert str(target) in str(admin.describe_log_dirs(["t"]))
        (code,) = admin.alter_replica_log_dirs({replica: "/nowhere"}).values()
        assert code.errno == ErrorCode.LOG_DIR_NOT_FOUND
    finally:
        admin.close()
