"""What a test waits for: brokers of `tidelog.testing`, and the cluster of `tidelog dev -n 3`.

A fresh broker counts from its constructor to the first acknowledged record of a raw client; the
first record of a group from the join of a consumer in a broker that runs. The memory of a cluster
is that of all its processes, without what they share (PSS).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench import wire
from bench.arena import Arena, Sample, best
from bench.peers import BrokerFailed
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.wire import ProduceAnswer, record_batch
from tidelog.client import Consumer
from tidelog.testing import Broker
from tidelog.testing.broker import Snapshot

TITLE = "fixtures"
TOPIC = "bench-fixtures"
SNAPSHOT_BYTES = 10_000_000
RECORD_BYTES = 10_000
DEV_BROKERS = 3
DEV_READY_WITHIN_S = 60
ROWS = (
    ("fresh broker as a process, first ack", "s", 0.25),
    ("fresh broker in process, first ack", "s", 0.05),
    ("first record through a group", "ms", 150),
    ("snapshot of 10 MB", "ms", 50),
    ("restore of 10 MB", "ms", 50),
    ("tidelog dev -n 3 ready", "s", 1.5),
    ("tidelog dev -n 3 memory", "MB", 150),
)


def run(arena: Arena) -> Report:
    tidelog = arena.tidelog
    if tidelog is None:
        return Report(TITLE, [])
    rounds = {
        tidelog.name: [
            [
                Sample(_first_ack(in_process=False)),
                Sample(_first_ack(in_process=True)),
                *(Sample(found) for found in _steered()),
                *(Sample(found) for found in _dev(arena.data_dir(tidelog))),
            ]
            for _ in range(arena.size.rounds)
        ]
    }
    return Report(
        TITLE,
        [
            Figure(label, unit, best(rounds, place, higher=False), False, own_limit=limit)
            for place, (label, unit, limit) in enumerate(ROWS)
        ],
    )


def _first_ack(*, in_process: bool) -> float:
    started = time.perf_counter()
    with Broker(in_process=in_process) as broker:
        _write(broker, record_batch(100, 1).data, 1)
        return time.perf_counter() - started


def _write(broker: Broker, batch: bytes, times: int) -> None:
    produce = wire.produce_request(TOPIC, 0, batch)
    layout = ProduceAnswer.for_topic(TOPIC)
    with RawClient(int(broker.bootstrap_servers.rpartition(":")[2]), timeout_s=10) as client:
        while not wire.led_partitions(client.ask(wire.metadata_request([TOPIC], auto_create=True))):
            time.sleep(0.001)
        for _ in range(times):
            layout.base_offset(client.ask(produce))


def _steered() -> tuple[float, float, float]:
    """Milliseconds to the first record of a group, of a snapshot, and of its restoration."""
    batch = record_batch(RECORD_BYTES, 10).data
    with Broker() as broker:
        _write(broker, batch, SNAPSHOT_BYTES // len(batch))
        group_ms = _ms_of_a_group(broker)
        taken: list[Snapshot] = []
        snapshot_ms = _ms(lambda: taken.append(broker.snapshot()))
        return group_ms, snapshot_ms, _ms(lambda: broker.restore(taken[0]))


def _ms_of_a_group(broker: Broker) -> float:
    """Leaving the group does not count."""
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": TOPIC,
        "auto.offset.reset": "earliest",
    }
    started = time.perf_counter()
    with Consumer(config) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.poll(0.1):
            pass
        return (time.perf_counter() - started) * 1000


def _ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def _dev(directory: Path) -> tuple[float, float]:
    """Seconds until all brokers are ready, and megabytes of all processes."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("tidelog")),
            *("dev", "-n", str(DEV_BROKERS), "--data", str(directory), "--port", "0"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        ready_s = _until_ready(process, started)
        family = [
            psutil.Process(process.pid),
            *psutil.Process(process.pid).children(recursive=True),
        ]
        return ready_s, sum(each.memory_full_info().pss for each in family) / 1e6
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=DEV_READY_WITHIN_S)


def _until_ready(process: subprocess.Popen[str], started: float) -> float:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("tidelog dev ready"):
            return time.perf_counter() - started
    raise BrokerFailed(f"tidelog dev ended before it was ready:\n{said}")
