"""delivery.timeout.ms is kept within 100 ms while a broker is silent, gone, or stands still."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.broker_process import EXTERNAL_BOOTSTRAP
from tests.support.linked_broker import LinkedBroker
from tests.support.raw_client import RawClient, create_topic
from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.blocking.producer import Producer
from tidelog.client.errors import ClientError, RequestTimedOut
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.delivery import RecordMetadata

pytestmark = pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="needs a broker of its own")

TOPIC, LINK = "late", "LINK"
DELIVERY_TIMEOUT_S = 1.2
TOLERANCE_S = 0.1
RECORDS = 6
APART_S = 0.07
SETTINGS: dict[str, object] = {
    "delivery.timeout.ms": round(DELIVERY_TIMEOUT_S * 1000),
    "request.timeout.ms": 400,
    "retry.backoff.ms": 20,
    "linger.ms": 0,
    "batch.size": 1,  # a batch for each record: its time begins with the batch
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LinkedBroker]:
    broker = LinkedBroker(tmp_path / "broker", [LINK])
    broker.process.start()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, TOPIC)
    yield broker
    broker.process.kill()
    broker.close()


def freeze(broker: LinkedBroker) -> None:
    broker.links[LINK].freeze()


def cut(broker: LinkedBroker) -> None:
    broker.links[LINK].cut()


def lose_answers(broker: LinkedBroker) -> None:
    broker.links[LINK].swallow_answers()


def kill(broker: LinkedBroker) -> None:
    broker.process.kill()


def stop(broker: LinkedBroker) -> None:
    broker.process.signal(signal.SIGSTOP)


class Lateness:
    """How much later than it should an event loop gets to run what is due. What the machine gives
    to others is not the producer's fault."""

    def __init__(self) -> None:
        self.most_s = 0.0
        self.is_over = False

    async def watch(self) -> None:
        while not self.is_over:
            due_at = time.monotonic() + 0.005
            await asyncio.sleep(0.005)
            self.most_s = max(self.most_s, time.monotonic() - due_at)


class Times:
    """When each record was sent and when it failed."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.errors: list[ClientError | None] = []

    def begin(self) -> Callable[[RecordMetadata, ClientError | None], None]:
        began_at = time.monotonic()

        def delivered(metadata: RecordMetadata, error: ClientError | None) -> None:
            self.waits_s.append(time.monotonic() - began_at)
            self.errors.append(error)

        return delivered

    def check(self, lateness_s: float) -> None:
        assert len(self.waits_s) == RECORDS
        assert all(isinstance(error, RequestTimedOut) for error in self.errors), self.errors
        assert min(self.waits_s) >= DELIVERY_TIMEOUT_S - 0.001, self.waits_s
        limit_s = DELIVERY_TIMEOUT_S + TOLERANCE_S + lateness_s
        assert max(self.waits_s) <= limit_s, (self.waits_s, lateness_s)


@pytest.mark.parametrize("trouble", [freeze, cut, lose_answers, kill, stop])
def test_records_fail_when_their_time_is_over(
    broker: LinkedBroker, trouble: Callable[[LinkedBroker], None]
) -> None:
    async def story() -> None:
        times, lateness = Times(), Lateness()
        bootstrap = broker.links[LINK].address
        async with AsyncProducer(SETTINGS, bootstrap_servers=bootstrap) as producer:
            await (await producer.send(TOPIC, b"in peace"))
            watching = asyncio.create_task(lateness.watch())
            trouble(broker)
            for _ in range(RECORDS):
                await producer.send(TOPIC, b"in trouble", on_delivery=times.begin())
                await asyncio.sleep(APART_S)
            await producer.flush()
            await asyncio.sleep(0)  # callbacks come in the turn after
            lateness.is_over = True
            await watching
        times.check(lateness.most_s)

    asyncio.run(story())


@pytest.mark.parametrize("trouble", [freeze, kill])
def test_a_blocking_producer_keeps_the_time_too(
    broker: LinkedBroker, trouble: Callable[[LinkedBroker], None]
) -> None:
    times, lateness = Times(), Lateness()
    bootstrap = broker.links[LINK].address
    with (
        ThreadPoolExecutor(1) as pool,
        Producer(SETTINGS, bootstrap_servers=bootstrap) as producer,
    ):
        producer.send(TOPIC, b"in peace").result()
        watching = pool.submit(LoopThread.shared().run, lateness.watch)
        trouble(broker)
        deliveries = []
        for _ in range(RECORDS):
            begin = times.begin()
            deliveries.append(producer.send(TOPIC, b"in trouble", on_delivery=begin))
            time.sleep(APART_S)
        for delivery in deliveries:
            with pytest.raises(RequestTimedOut, match=r"delivery\.timeout\.ms"):
                delivery.result()
        producer.flush()
        lateness.is_over = True
        watching.result()
    times.check(lateness.most_s)
