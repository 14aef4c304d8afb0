"""Consumer groups: offset commits, a restart with many groups, transactions with offsets.

A commit names ten partitions of one group and is answered when it is in the log. The restart is a
clean one; its time runs from the exec until the offsets of every group have come back as they were
committed, so that nothing is left to load. The loop of transactions is confluent-kafka's: ten
records read, ten written, their offsets with them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.group_wire import (
    commit_errors,
    fetched_offsets,
    offset_commit_request,
    offset_fetch_request,
    wait_for_coordinator,
)
from bench.peers import START_TIMEOUT_S, BrokerFailed, BrokerProcess, Peer
from bench.raw_client import RawClient
from bench.table import Figure, Report

TITLE = "consumer groups"
TOPIC, TARGET = "bench-groups", "bench-groups-target"
GROUP = "bench"
PARTITIONS = 10
GROUPS = 1_000
IN_FLIGHT = 5
LOAD_LIMIT_S = 2.0
RETRY_S = 0.005
RECORDS_PER_TRANSACTION = 10
PATIENCE_S = 60.0
# Kafka refuses the next transaction while it writes the markers of the last one, and librdkafka
# waits for 100 ms by default before it asks again, which would be all that is measured.
HURRIED = {"linger.ms": 0, "retry.backoff.ms": 1, "retry.backoff.max.ms": 10}


def run(arena: Arena) -> Report:
    count = arena.size.of(3_000, 20_000)
    with arena.brokers() as brokers:
        for broker in brokers:
            _prepare(broker)
            _commits(broker, count, IN_FLIGHT)
        commits = alternate(
            brokers,
            arena.size.rounds,
            lambda broker: [_commits(broker, count, IN_FLIGHT), _commits(broker, count // 4, 1)],
        )
        figures = [
            _throughput(
                "commit of 10 partitions, pipelined", "commits/s", best(commits, 0, higher=True)
            ),
            _throughput(
                "commit of 10 partitions, one at a time", "commits/s", best(commits, 1, higher=True)
            ),
        ]
        remarks = []
        if _has_confluent():
            transactions = arena.size.of(100, 500)
            copied = alternate(
                brokers, arena.size.rounds, lambda broker: [_transactions(broker, transactions)]
            )
            figures.append(
                _throughput(
                    "consume-transform-produce", "transactions/s", best(copied, 0, higher=True)
                )
            )
        else:
            remarks.append("confluent-kafka is not installed: no transactions measured")
    figures.append(_restart(arena))
    return Report(TITLE, figures, remarks=remarks)


def _throughput(label: str, unit: str, values: dict[str, Sample]) -> Figure:
    return Figure(label, unit, values, True, 1.0)


def _prepare(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        client.create_topic(TOPIC, PARTITIONS)
        wait_for_coordinator(client, GROUP, TOPIC)


# Commits


def _commits(broker: BrokerProcess, count: int, in_flight: int) -> Sample:
    request = offset_commit_request(GROUP, TOPIC, range(1_000, 1_000 + PARTITIONS))

    def work() -> Sample:
        with broker.connect() as client:
            answer = client.ask(request)
            run, last = client.pump(request, len(answer), count, in_flight, len(request))
        if any(commit_errors(last)):
            raise wire.BadAnswer(f"a commit was refused: {commit_errors(last)}")
        return Sample(run.requests_per_second, run.client_busy)

    return with_broker_cpu(broker, work)


# A restart


def _restart(arena: Arena) -> Figure:
    rounds: dict[str, list[list[Sample]]] = {peer.name: [] for peer in arena.peers}
    for _ in range(arena.size.of(1, 3)):
        for peer in arena.peers:
            rounds[peer.name].append([_restarted(arena, peer)])
    values = best(rounds, 0, higher=False)
    label = f"restart, {GROUPS:,} groups of {PARTITIONS} partitions read back"
    return Figure(label, "s", values, False, own_limit=LOAD_LIMIT_S)


def _restarted(arena: Arena, peer: Peer) -> Sample:
    with arena.running(peer) as broker:
        _prepare(broker)
        with broker.connect() as client:
            for number in range(GROUPS):
                request = offset_commit_request(_group(number), TOPIC, _offsets(number))
                if any(commit_errors(client.ask(request))):
                    raise wire.BadAnswer(f"the commit of {_group(number)} was refused")
        broker.stop()
        started = broker.spawn()
        left = list(range(GROUPS))
        while left:
            broker.check_alive()
            if time.perf_counter() - started > START_TIMEOUT_S:
                raise BrokerFailed(f"{broker.name} does not know {len(left)} of {GROUPS} groups")
            left = _not_yet_loaded(broker, left)
        return Sample(time.perf_counter() - started)


def _group(number: int) -> str:
    return f"bench-{number}"


def _offsets(number: int) -> Sequence[int]:
    return range(number, number + PARTITIONS)


def _not_yet_loaded(broker: BrokerProcess, numbers: Sequence[int]) -> list[int]:
    """Goes through the groups until one cannot answer yet."""
    try:
        with RawClient(broker.port, timeout_s=10) as client:
            for place, number in enumerate(numbers):
                answer = client.ask(offset_fetch_request(_group(number), TOPIC, PARTITIONS))
                if fetched_offsets(answer) != list(_offsets(number)):
                    time.sleep(RETRY_S)
                    return list(numbers[place:])
    except OSError:
        time.sleep(RETRY_S)
        return list(numbers)
    return []


# Transactions


def _has_confluent() -> bool:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return False
    return True


def _transactions(broker: BrokerProcess, count: int) -> Sample:
    from confluent_kafka import Consumer, Producer, TopicPartition

    topics = (TOPIC + "-source", TARGET)
    with broker.connect() as client:
        for topic in topics:
            client.create_topic(topic)
        client.produce(topics[0], wire.record_batch(100, RECORDS_PER_TRANSACTION), count)
        # `produce` sends one batch ahead of those it counts.
        records = client.end_offset(topics[0]) - RECORDS_PER_TRANSACTION
    config = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    producer = Producer({**config, "transactional.id": "bench", **HURRIED})
    consumer = Consumer({**config, "group.id": GROUP, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topics[0], 0, 0)])
    producer.init_transactions(PATIENCE_S)

    def copy_some() -> int:
        messages = consumer.consume(RECORDS_PER_TRANSACTION, PATIENCE_S)
        producer.begin_transaction()
        for message in messages:
            producer.produce(TARGET, message.value(), partition=0)
        end = TopicPartition(topics[0], 0, (messages[-1].offset() or 0) + 1)
        producer.send_offsets_to_transaction([end], consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        return len(messages)

    def work() -> Sample:
        started, cpu_started = time.perf_counter(), time.process_time()
        copied = 0
        while copied < records:
            copied += copy_some()
        seconds = time.perf_counter() - started
        busy = (time.process_time() - cpu_started) / seconds
        return Sample(records / RECORDS_PER_TRANSACTION / seconds, busy)

    copy_some()  # connects everything
    sample = with_broker_cpu(broker, work)
    consumer.close()
    with broker.connect() as client:
        for topic in topics:
            client.delete_topic(topic)
    return sample
