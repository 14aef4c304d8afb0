"""Settings of the network layer take effect in a real broker: limits, processors, the kernel's
twin."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import StartBroker
from tests.support.eventually import eventually
from tests.support.foreign_clients import CODECS, Aiokafka, ConfluentKafka, Message
from tests.support.raw_batch import batch
from tests.support.raw_client import (
    LATEST,
    ClosedByBroker,
    RawClient,
    api_versions,
    create_topic,
    list_offset,
    produce,
    produce_request,
)
from tests.support.socket_news import is_readable

CONNECTIONS = 60


def is_served(client: RawClient) -> bool:
    try:
        return bool(api_versions(client))
    except ClosedByBroker:
        return False


def test_connections_beyond_the_limit_of_an_address_are_closed(start_broker: StartBroker) -> None:
    broker = start_broker({"max.connections.per.ip": "3"})
    clients = [RawClient(broker.bootstrap) for _ in range(5)]
    try:
        assert [is_served(client) for client in clients] == [True, True, True, False, False]
        clients[0].close()

        def is_late_one_served() -> bool:
            with RawClient(broker.bootstrap) as late:
                return is_served(late)

        eventually(is_late_one_served)
    finally:
        for client in clients:
            client.close()


def test_idle_connections_are_closed_and_busy_ones_kept(start_broker: StartBroker) -> None:
    broker = start_broker({"connections.max.idle.ms": "3000"})
    with RawClient(broker.bootstrap) as idle, RawClient(broker.bootstrap) as busy:
        assert is_served(idle)

        def is_idle_one_closed() -> bool:
            assert is_served(busy)
            return is_readable(idle.socket, 0.1)

        eventually(is_idle_one_closed)
        assert idle.is_closed_by_broker()
        assert is_served(busy)


def test_requests_above_socket_request_max_bytes_close(start_broker: StartBroker) -> None:
    broker = start_broker({"socket.request.max.bytes": "10000"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "small")
        assert produce(client, "small", batch(b"x" * 9000)).error_code == 0
        client.send_bytes(client.frame_of(produce_request("small", batch(b"x" * 11_000))))
        assert client.is_closed_by_broker()


@pytest.mark.parametrize("processors", ["1", "3"])
def test_many_connections_write_at_once_and_nothing_is_lost(
    start_broker: StartBroker, processors: str
) -> None:
    broker = start_broker({"num.network.threads": processors, "queued.max.requests": "8"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "busy")
    offsets: list[int] = []

    def write() -> None:
        with RawClient(broker.bootstrap) as client:
            requests = [produce_request("busy", batch(b"x" * 100)) for _ in range(20)]
            client.send_bytes(b"".join(client.frame_of(request) for request in requests))
            rows = [client.receive(r).responses[0].partition_responses[0] for r in requests]
            assert [row.error_code for row in rows] == [0] * len(rows)
            own = [row.base_offset for row in rows]
            assert own == sorted(own)
            offsets.extend(own)

    threads = [threading.Thread(target=write) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(offsets) == list(range(CONNECTIONS * 20))
    with RawClient(broker.bootstrap) as client:
        assert list_offset(client, "busy", LATEST).offset == CONNECTIONS * 20


@pytest.mark.parametrize(
    ("overrides", "environment"),
    [({"num.network.threads": "3"}, {}), ({}, {"TIDELOG_PURE": "1"})],
    ids=["three processors", "pure Python"],
)
def test_clients_are_served_in_every_configuration(
    start_broker: StartBroker, overrides: dict[str, str], environment: dict[str, str]
) -> None:
    broker = start_broker(overrides, environment=environment)
    messages = [Message(b"%d" % i * 50, b"k", (("h", b"v"),), 1000 + i) for i in range(100)]
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "t", partitions=len(CODECS))
    for partition, codec in enumerate(CODECS):
        ConfluentKafka().produce(broker.bootstrap, "t", partition, codec, messages)
    broker.kill()
    broker.start()
    counts = dict.fromkeys(range(len(CODECS)), len(messages))
    for partition, read in Aiokafka().consume(broker.bootstrap, "t", counts).items():
        assert [m.as_carried(headers=True, timestamp=True) for m in read] == messages, partition
