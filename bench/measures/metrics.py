"""What metrics cost: Produce beside a broker without them, and a scrape of many partitions.

One of two brokers of tidelog serves metrics and is scraped every second, which is more often than
Prometheus does by default. Both count and time requests, because every broker does. The scrapes of
the last two rows are of a broker with 5,000 partitions; the idle client asks ApiVersions meanwhile.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.arena import Arena, Sample
from bench.beside_plain import AGAINST, BesidePlain
from bench.idle_client import LONGEST_WAIT_MS, longest_wait
from bench.peers import Peer
from bench.table import Figure, Report
from bench.wire import BadAnswer, batch_filling, record_batch
from tidelog.tools.free_ports import free_port

TITLE = "what metrics cost"
TARGET = 0.99
SCRAPE_EVERY_S = 1.0
SCRAPE_MS_MAX = 50.0
SCRAPE_TIMEOUT_S = 10.0


def run(arena: Arena) -> Report:
    if arena.tidelog is None:
        return Report(TITLE, remarks=["there is no tidelog among the peers: nothing measured"])
    figures = [*_produce(arena, arena.tidelog), *_scrapes(arena, arena.tidelog)]
    return Report(TITLE, figures, against=AGAINST)


def _produce(arena: Arena, peer: Peer) -> list[Figure]:
    port = free_port()
    with ExitStack() as stack:
        plain = stack.enter_context(arena.running(peer))
        observed = stack.enter_context(arena.running(peer, _listener(port)))
        stack.enter_context(_scraped_all_the_while(port))
        measure = BesidePlain(arena, plain, observed, observed.connect)
        few, many = arena.size.of(6_000, 20_000), arena.size.of(15_000, 60_000)
        small, large = record_batch(100, 1), batch_filling(1_000, 16_384)
        return [
            measure.figure("one 100 B record a request", small, many, TARGET),
            measure.figure("16 KB batches of 1 KB", large, few, TARGET),
        ]


def _scrapes(arena: Arena, peer: Peer) -> list[Figure]:
    port, partitions = free_port(), arena.size.of(500, 5_000)
    with arena.running(peer, _listener(port)) as broker:
        with broker.connect() as client:
            client.create_topic("bench-metrics", partitions)
        times = [_scrape_ms(port, partitions) for _ in range(arena.size.rounds)]
        wait = longest_wait(broker, lambda: _scrape_ms(port, partitions))
    return [
        Figure(
            f"a scrape with {partitions:,} partitions",
            "ms",
            {"tidelog": Sample(min(times))},
            False,
            own_limit=SCRAPE_MS_MAX,
        ),
        Figure(
            "an idle client meanwhile, longest wait",
            "ms",
            {"tidelog": wait},
            False,
            own_limit=LONGEST_WAIT_MS,
        ),
    ]


def _listener(port: int) -> dict[str, str]:
    return {"tidelog.metrics.listener": f"HTTP://127.0.0.1:{port}"}


@contextmanager
def _scraped_all_the_while(port: int) -> Iterator[None]:
    """A scrape that fails ends the measure: nothing was measured then."""
    stop = threading.Event()
    failures: list[Exception] = []

    def scrape_on() -> None:
        try:
            while not stop.wait(SCRAPE_EVERY_S):
                _scrape_ms(port)
        except (OSError, BadAnswer) as failure:
            failures.append(failure)

    thread = threading.Thread(target=scrape_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    for failure in failures:
        raise BadAnswer(f"a scrape failed: {failure}")


def _scrape_ms(port: int, partitions: int = 0) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_TIMEOUT_S
    ) as answer:
        page: bytes = answer.read()
    took = (time.perf_counter() - began) * 1e3
    if page.count(b"\nkafka_topic_partition_current_offset{") < partitions:
        raise BadAnswer(f"the scrape does not tell of {partitions:,} partitions")
    return took
