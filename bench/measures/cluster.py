"""Three brokers over ZooKeeper: six partitions, replication 3, min.insync.replicas 2, acks=all.

Every record counts once, however many replicas it has. Raw connections, one a broker, keep five
Produce requests in flight, each with a batch for every partition that the broker leads, as a
producer with many records sends them. Kafka's ProducerPerformance and confluent-kafka run with
their defaults (the former is idempotent then) and acks=all. Resident memory is that of the three
brokers together, before the first record and after the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.cluster import ClusterProcess
from bench.measures.confluent import produce_one_by_one
from bench.peers import Peer
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.tools import JavaTools
from bench.wire import BadAnswer, Batch, batch_filling, record_batch

TITLE = "three brokers over ZooKeeper, acks=all"
PARTITIONS = 6
IN_FLIGHT = 5
SETTLE_S = 3.0
LED_WITHIN_S = 10.0
FASTER = 1.5
FASTER_SMALL_RECORDS = 2.5  # by Kafka's own producer
SMALLER = 0.25

Work = Callable[[ClusterProcess, str], Sample]


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    unit: str
    work: Work
    target: float = FASTER


def run(arena: Arena) -> Report:
    with ExitStack() as stack:
        clusters = [stack.enter_context(_running(arena, peer)) for peer in arena.peers]
        idle = _resident(clusters)
        figures = [_figure(arena, clusters, case) for case in _cases(arena)]
        loaded = _resident(clusters)
    return Report(
        TITLE,
        [
            *figures,
            Figure("resident memory of the three, idle", "MB", idle, False, SMALLER),
            Figure("resident memory of the three, after the load", "MB", loaded, False, SMALLER),
        ],
    )


@contextmanager
def _running(arena: Arena, peer: Peer) -> Iterator[ClusterProcess]:
    cluster = ClusterProcess(peer, arena.data_dir(peer))
    try:
        cluster.start()
        yield cluster
    except (BadAnswer, OSError) as failure:
        failure.add_note(f"{cluster.name} wrote last:\n{cluster.last_output()}")
        raise
    finally:
        cluster.discard()


def _resident(clusters: Sequence[ClusterProcess]) -> dict[str, Sample]:
    time.sleep(SETTLE_S)
    return {cluster.name: Sample(cluster.resident_bytes() / 1e6) for cluster in clusters}


def _cases(arena: Arena) -> list[Case]:
    small, medium = arena.size.of(1_000, 4_000), arena.size.of(500, 1_500)
    records = arena.size.of(100_000, 300_000)
    one, thousand, hundred = (
        record_batch(100, 1),
        batch_filling(1_000, 16_384),
        batch_filling(100, 16_384),
    )
    cases = [
        Case(
            "raw, one 100 B record a batch",
            "requests/s",
            lambda c, t: _requests(c, t, one, small),
        ),
        Case("raw, 16 KB batches of 1 KB", "MB/s", lambda c, t: _megabytes(c, t, thousand, medium)),
        Case("raw, 16 KB batches of 100 B", "MB/s", lambda c, t: _megabytes(c, t, hundred, medium)),
    ]
    if arena.kafka is not None:
        java = JavaTools(arena.kafka)
        cases += [
            Case(
                "ProducerPerformance 100 B",
                "MB/s",
                lambda c, t: _java(java, c, t, records * 4, 100),
                FASTER_SMALL_RECORDS,
            ),
            Case(
                "ProducerPerformance 1 KB",
                "MB/s",
                lambda c, t: _java(java, c, t, records, 1_000),
            ),
        ]
    cases += [
        Case("confluent-kafka 100 B", "MB/s", lambda c, t: _confluent(c, t, records * 2, 100)),
        Case("confluent-kafka 1 KB", "MB/s", lambda c, t: _confluent(c, t, records, 1_000)),
    ]
    return cases


def _figure(arena: Arena, clusters: Sequence[ClusterProcess], case: Case) -> Figure:
    rounds = alternate(clusters, arena.size.of(2, 4), lambda cluster: [_round(cluster, case.work)])
    return Figure(case.label, case.unit, best(rounds, 0, higher=True), True, case.target)


def _round(cluster: ClusterProcess, work: Work) -> Sample:
    topic = cluster.create_topic(PARTITIONS)
    sample = with_broker_cpu(cluster, lambda: work(cluster, topic))
    cluster.delete_topic(topic)
    return sample


def _requests(cluster: ClusterProcess, topic: str, batch: Batch, count: int) -> Sample:
    seconds, busy = _pump(cluster, topic, batch, count)
    return Sample(len(cluster.brokers) * count / seconds, busy)


def _megabytes(cluster: ClusterProcess, topic: str, batch: Batch, count: int) -> Sample:
    seconds, busy = _pump(cluster, topic, batch, count)
    return Sample(PARTITIONS * count * len(batch.data) / seconds / 1e6, busy)


def _pump(cluster: ClusterProcess, topic: str, batch: Batch, count: int) -> tuple[float, float]:
    """Seconds until every broker has answered count requests, and how busy this process was."""
    with ExitStack() as stack:
        clients = {
            number: stack.enter_context(RawClient(broker.port))
            for number, broker in cluster.brokers.items()
        }
        led = {number: cluster.led_by(number, PARTITIONS) for number in clients}
        requests = {
            number: wire.produce_many_request(topic, dict.fromkeys(partitions, batch.data), acks=-1)
            for number, partitions in led.items()
        }
        answers = {
            number: _first_answer(client, requests[number], topic, led[number])
            for number, client in clients.items()
        }
        ends = {
            (number, partition): client.end_offset(topic, partition)
            for number, client in clients.items()
            for partition in led[number]
        }
        pool = stack.enter_context(ThreadPoolExecutor(len(clients)))
        started, cpu_started = time.perf_counter(), time.process_time()
        pumps = [
            pool.submit(
                client.pump,
                requests[number],
                len(answers[number]),
                count,
                IN_FLIGHT,
                len(batch.data),
            )
            for number, client in clients.items()
        ]
        for pump in pumps:
            pump.result()
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        for (number, partition), end in ends.items():
            expected = end + count * batch.records_count
            _check(clients[number], topic, partition, expected)
    return seconds, cpu_seconds / seconds


def _first_answer(
    client: RawClient, request: bytes, topic: str, partitions: Sequence[int]
) -> bytes:
    """A leader may hear of a new topic after the broker that was asked for it has answered."""
    deadline = time.monotonic() + LED_WITHIN_S
    while time.monotonic() < deadline:
        answer = client.ask(request)
        with suppress(BadAnswer):
            if all(client.end_offset(topic, partition) for partition in partitions):
                return answer
        time.sleep(0.02)
    raise BadAnswer(f"{topic} takes no records after {LED_WITHIN_S} s")


def _check(client: RawClient, topic: str, partition: int, expected: int) -> None:
    """What is committed must be what was sent."""
    found = client.end_offset(topic, partition)
    if found != expected:
        raise BadAnswer(f"partition {partition} ends at {found}, not {expected}")


def _clients_settings(cluster: ClusterProcess) -> Mapping[str, str]:
    return {"bootstrap.servers": cluster.bootstrap, "acks": "all"}


def _java(
    java: JavaTools, cluster: ClusterProcess, topic: str, records: int, record_bytes: int
) -> Sample:
    return java.produce(topic, records, record_bytes, _clients_settings(cluster))


def _confluent(cluster: ClusterProcess, topic: str, records: int, record_bytes: int) -> Sample:
    return produce_one_by_one(_clients_settings(cluster), topic, records, record_bytes)
