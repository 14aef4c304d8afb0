"""The web console beside one tidelog broker, as a browser sees it.

    first page      the overview, and the list of topics, of a cluster with 1,000 topics: the first
                    answers of a console that has just started
    search          a text that is nowhere, in all records of a topic, to the last one; and a
                    condition on a field of JSON, for which every record is parsed
    live tail       from `send` to the event that shows the record, at 5,000 records a second; the
                    slowest of 100. The tail shows a sample, so only records that it shows count

A search pauses every ten seconds; the measure follows its button, as a reader would.
"""

from __future__ import annotations

import html
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from bench.arena import Arena, Sample, best
from bench.peers import BrokerProcess
from bench.table import Figure, Report
from bench.tools import ToolFailed
from tidelog.client import Admin, NewTopic, Producer

TITLE = "web console"
TOPICS = 1_000
RECORDS_S = 5_000
RECORD_BYTES = 1_000
TAIL_EVENTS = 60
TOPIC = "bench-console"
TAIL_TOPIC = "bench-console-tail"
READY = re.compile(r"console=(http://127\.0\.0\.1:(\d+))")
STAMP = re.compile(rb"sent (\d+\.\d{6}) x")
NEXT = re.compile(r'rel="next" href="([^"]+)"')
TIMEOUT_S = 120.0
ROWS = (
    ("first page, 1,000 topics", "ms", 200),
    ("list of topics, 1,000 topics", "ms", 200),
    ("search for a text, 1 M records of 1 kB", "s", 10),
    ("search by a field, 1 M records of 1 kB", "s", 10),
    ("live tail at 5,000 records/s, slowest of 100", "ms", 250),
)


def run(arena: Arena) -> Report:
    tidelog = arena.tidelog
    if tidelog is None:
        return Report(TITLE, remarks=["needs tidelog: nothing measured"])
    records = arena.size.of(200_000, 1_000_000)
    with arena.running(tidelog) as broker:
        _make_topics(broker)
        _fill(broker, records)
        scale = 1_000_000 / records
        rounds = {tidelog.name: [_round(broker, scale) for _ in range(arena.size.rounds)]}
    return Report(
        TITLE,
        [
            Figure(label, unit, best(rounds, place, higher=False), False, own_limit=limit)
            for place, (label, unit, limit) in enumerate(ROWS)
        ],
    )


def _make_topics(broker: BrokerProcess) -> None:
    with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        names = [NewTopic(f"bench-{number}", num_partitions=1) for number in range(TOPICS)]
        for result in admin.create_topics(
            [*names, NewTopic(TAIL_TOPIC, 4), NewTopic(TOPIC, 4)]
        ).values():
            result.get()


def _fill(broker: BrokerProcess, records: int) -> None:
    note = "x" * (RECORD_BYTES - 100)
    with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", linger_ms=20) as producer:
        for number in range(records):
            document = {"customer": {"id": number, "name": f"c{number % 1000}"}, "note": note}
            producer.send(TOPIC, json.dumps(document).encode(), key=b"%d" % number)


def _round(broker: BrokerProcess, scale: float) -> list[Sample]:
    with _console(broker) as port:
        pages_ms = [1_000 * _seconds(port, path) for path in ("/", "/topics")]
        searches_s = [
            scale * _seconds(port, f"/messages?topic={TOPIC}&from=oldest&{asked}")
            for asked in ("value=nowhere-at-all", f"filter={quote('value.customer.id < 0')}")
        ]
        return [Sample(found) for found in (*pages_ms, *searches_s, _tail_ms(broker, port))]


@contextmanager
def _console(broker: BrokerProcess) -> Iterator[int]:
    """Its port."""
    command = [str(Path(sys.executable).with_name("tidelog")), "console"]
    command += ["-b", f"127.0.0.1:{broker.port}", "--listen", "http://127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = READY.search(process.stdout.readline())
            if ready is None:
                raise ToolFailed("the console does not start")
            yield int(ready[2])
        finally:
            process.terminate()


def _seconds(port: int, path: str) -> float:
    """Until the answer is there, with all pages of a search."""
    began = time.perf_counter()
    following: str | None = path
    while following is not None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        connection.request("GET", following)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status != 200:
            raise ToolFailed(f"{following}: {answer.status}")
        found = NEXT.search(text) if path.startswith("/messages") else None
        following = None if found is None else html.unescape(found[1])
    return time.perf_counter() - began


def _tail_ms(broker: BrokerProcess, port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request("GET", f"/messages/+live?topic={TAIL_TOPIC}")
    stream = connection.getresponse()
    done = threading.Event()
    writer = threading.Thread(target=_write, args=(broker, done))
    writer.start()
    try:
        delays: list[float] = []
        seen: set[bytes] = set()
        events = 0
        while events < TAIL_EVENTS:
            line = stream.readline()
            now = time.time()
            events += line.startswith(b"event: parts")
            for stamp in set(STAMP.findall(line)) - seen:
                seen.add(stamp)
                delays.append(now - float(stamp))
    finally:
        done.set()
        writer.join()
        connection.close()
    delays.sort()
    return 1_000 * delays[len(delays) * 99 // 100]


def _write(broker: BrokerProcess, done: threading.Event) -> None:
    with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", linger_ms=5) as producer:
        began, sent = time.time(), 0
        while not done.wait(0.002):
            due = int((time.time() - began) * RECORDS_S)
            for _ in range(due - sent):
                value = b"sent %.6f %s" % (time.time(), b"x" * (RECORD_BYTES - 30))
                producer.send(TAIL_TOPIC, value, key=b"%d" % sent)
                sent += 1
