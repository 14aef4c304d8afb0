"""Many connections that produce at once share the log's writes, and each gets its own answer."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.integration.test_zero_copy import SystemCalls
from tests.support.eventually import eventually
from tests.support.raw_batch import batch, read_batches
from tests.support.raw_client import (
    LATEST,
    RawClient,
    create_topic,
    fetch,
    list_offset,
    produce_request,
)

CLIENTS = 40
ROUNDS = 25
WRITE = re.compile(r"pwrite64\(.*\.log>.*\) = (\d+)")


class LogWrites(SystemCalls):
    TRACED = "trace=pwrite64,pwritev"


def values_of(client: RawClient, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        row = fetch(client, topic, len(found))
        batches = read_batches(row.records)
        assert batches, f"{len(found)} of {count}"
        found += [record.value for each in batches for record in each.records()]
    return found


@pytest.mark.parametrize("processors", ["1", "3"])
def test_many_producers_share_writes(
    start_broker: StartBroker, tmp_path: Path, processors: str
) -> None:
    broker = start_broker({"num.network.threads": processors})
    answered: dict[int, bytes] = {}
    with RawClient(broker.bootstrap) as reader:
        create_topic(reader, "t")
        clients = [RawClient(broker.bootstrap) for _ in range(CLIENTS)]
        calls = LogWrites(broker.pid, tmp_path / "strace.txt")
        for round_number in range(ROUNDS):
            requests = []
            for number, client in enumerate(clients):
                value = b"client %d round %d" % (number, round_number)
                request = produce_request("t", batch(value))
                client.send(request)
                requests.append((client, request, value))
            for client, request, value in requests:
                row = client.receive(request).responses[0].partition_responses[0]
                assert row.error_code == 0
                answered[row.base_offset] = value
        lines = calls.lines()
        count = CLIENTS * ROUNDS
        assert sorted(answered) == list(range(count))
        assert values_of(reader, "t", count) == [answered[each] for each in range(count)]
        for client in clients:
            client.close()
    writes = sum(1 for line in lines if WRITE.search(line))
    assert 0 < writes < count


def test_a_pipelining_producer_gets_its_answers_in_order(start_broker: StartBroker) -> None:
    broker = start_broker({})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "t")
        requests = []
        for number in range(600):
            value = b"v" * (20_000 if number % 50 == 7 else 20)
            records = batch(value) if number % 30 else batch(value)[:-1]
            requests.append(produce_request("t", records, acks=1 if number % 2 else -1))
        frames = b"".join(client.frame_of(request) for request in requests)
        sender = threading.Thread(target=client.send_bytes, args=(frames,))
        sender.start()
        offset = 0
        for number, request in enumerate(requests):
            row = client.receive(request).responses[0].partition_responses[0]
            if number % 30:
                assert (row.error_code, row.base_offset) == (0, offset)
                offset += 1
            else:
                assert row.error_code != 0
        sender.join()


def test_a_client_that_leaves_at_once_has_produced_all_the_same(
    start_broker: StartBroker,
) -> None:
    broker = start_broker({})
    with RawClient(broker.bootstrap) as reader:
        create_topic(reader, "t")
        for number in range(100):
            with RawClient(broker.bootstrap) as client:
                client.send(produce_request("t", batch(b"%d" % number)))
        eventually(lambda: list_offset(reader, "t", LATEST).offset == 100)
        found = values_of(reader, "t", 100)
        assert sorted(found) == sorted(b"%d" % number for number in range(100))  # type: ignore[type-var]


def test_a_stop_answers_or_appends_nothing_by_half(start_broker: StartBroker) -> None:
    """What was answered is in the log after the next start."""
    broker = start_broker({})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "t")
    clients = [RawClient(broker.bootstrap) for _ in range(30)]
    requests = [produce_request("t", batch(b"%d" % number)) for number in range(30)]
    for client, request in zip(clients, requests, strict=True):
        client.send(request)
    broker.stop()
    answered: dict[int, bytes] = {}
    for number, (client, request) in enumerate(zip(clients, requests, strict=True)):
        try:
            row = client.receive(request).responses[0].partition_responses[0]
        except ConnectionError:
            continue
        finally:
            client.close()
        assert row.error_code == 0
        answered[row.base_offset] = b"%d" % number
    broker.start()
    with RawClient(broker.bootstrap) as reader:
        end_offset = list_offset(reader, "t", LATEST).offset
        found = values_of(reader, "t", end_offset)
    assert {offset: found[offset] for offset in answered} == answered
