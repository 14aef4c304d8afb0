"""kafka-producer-perf-test: sends records as fast as --throughput allows, and prints rates and
latencies every 5 seconds and at the end.

Latency is the time from send to acknowledgement. --print-metrics is refused: this client keeps no
metrics.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import KafkaTool, ToolFailed, config_file, wrong_usage

if TYPE_CHECKING:
    from tidelog.client.blocking.producer import Producer

WINDOW_MS: Final = 5_000
SAMPLES_MAX: Final = 500_000
MIB: Final = 1024 * 1024
PAYLOADS: Final = 1_000
LETTERS: Final = bytes(range(65, 91))
THROTTLE_SLACK_S: Final = 0.002


class Stats:
    """Kafka's: all latencies in milliseconds, sampled, and those of the window."""

    def __init__(self, record_count: int) -> None:
        self._sampling = max(1, record_count // min(max(record_count, 1), SAMPLES_MAX))
        self._latencies: list[int] = []
        self._started_ms = self._window_started_ms = now_ms()
        self.count = self._bytes = self._max = self._total = 0
        self._window_count = self._window_bytes = self._window_max = self._window_total = 0

    def record(self, latency_ms: int, size: int, at_ms: int) -> None:
        if self.count % self._sampling == 0:
            self._latencies.append(latency_ms)
        self.count += 1
        self._bytes += size
        self._total += latency_ms
        self._max = max(self._max, latency_ms)
        self._window_count += 1
        self._window_bytes += size
        self._window_total += latency_ms
        self._window_max = max(self._window_max, latency_ms)
        if at_ms - self._window_started_ms >= WINDOW_MS:
            self._print_window(at_ms)

    def _print_window(self, at_ms: int) -> None:
        elapsed_ms = at_ms - self._window_started_ms
        rate = 1000.0 * self._window_count / elapsed_ms
        size = 1000.0 * self._window_bytes / elapsed_ms / MIB
        mean = self._window_total / self._window_count
        print(
            f"{self._window_count} records sent, {rate:.1f} records/sec ({size:.2f} MB/sec), "
            f"{mean:.1f} ms avg latency, {self._window_max:.1f} ms max latency.",
            flush=True,
        )
        self._window_started_ms = at_ms
        self._window_count = self._window_bytes = self._window_max = self._window_total = 0

    def print_total(self) -> None:
        elapsed_ms = max(1, now_ms() - self._started_ms)
        rate = 1000.0 * self.count / elapsed_ms
        size = 1000.0 * self._bytes / elapsed_ms / MIB
        ordered = sorted(self._latencies) or [0]
        p50, p95, p99, p999 = (
            ordered[min(len(ordered) - 1, int(share * len(ordered)))]
            for share in (0.5, 0.95, 0.99, 0.999)
        )
        print(
            f"{self.count} records sent, {rate:f} records/sec ({size:.2f} MB/sec), "
            f"{self._total / max(1, self.count):.2f} ms avg latency, {self._max:.2f} ms max "
            f"latency, {p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
        )


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ManyProps(KafkaTool):
    """--producer-props takes all words up to the next flag, as argparse4j's nargs("+")."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(spread(args, "--producer-props")))


def spread(args: list[str], flag: str) -> list[str]:
    """The flag again before each of its words, which is how click takes several."""
    found: list[str] = []
    is_inside = False
    for arg in args:
        if arg == flag:
            is_inside = True
            continue
        is_inside = is_inside and not arg.startswith("--")
        found += [flag, arg] if is_inside else [arg]
    return found


@click.command("kafka-producer-perf-test", cls=ManyProps)
@click.option("--topic", required=True, metavar="TOPIC", shell_complete=complete_topics)
@click.option("--num-records", type=click.IntRange(min=0), required=True, metavar="N")
@click.option("--record-size", type=click.IntRange(min=0), metavar="BYTES")
@click.option("--payload-file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--payload-delimiter", default="\\n", metavar="TEXT")
@click.option("--payload-monotonic", is_flag=True, help="Values are 0, 1, 2, ...")
@click.option("--throughput", type=float, required=True, metavar="N", help="-1: no limit.")
@click.option("--producer-props", multiple=True, metavar="KEY=VALUE...")
@config_file("--producer.config")
@click.option("--print-metrics", is_flag=True)
@click.option(
    "--transactional-id", default="performance-producer-default-transactional-id", metavar="ID"
)
@click.option("--transaction-duration-ms", type=int, default=0, metavar="MS")
@pass_session
def command(session: Session, topic: str, **flags: Any) -> int:
    """Measure the producer."""
    chosen = [flags["record_size"] is not None, flags["payload_file"], flags["payload_monotonic"]]
    if sum(map(bool, chosen)) != 1:
        raise wrong_usage(
            "one of the arguments --record-size --payload-file --payload-monotonic is required"
        )
    if not flags["producer_props"] and session.config_file is None:
        raise wrong_usage("Either --producer-props or --producer.config must be specified.")
    if flags["print_metrics"]:
        raise ToolFailed("--print-metrics: this client keeps no metrics")
    settings = {"client.id": "perf-producer-client"}
    for pair in flags["producer_props"]:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise ToolFailed(f"Invalid property: {pair}")
        settings[key] = value
    transacts = flags["transaction_duration_ms"] > 0
    if transacts:
        settings["transactional.id"] = flags["transactional_id"]
    session.properties.update(settings)
    payloads = make_payloads(flags)
    count = flags["num_records"]
    with session.producer() as producer:
        if transacts:
            producer.init_transactions()
        stats = Stats(count)
        _send(producer, topic, payloads, stats, flags)
        producer.flush()
    stats.print_total()
    return 0


def make_payloads(flags: dict[str, Any]) -> list[bytes] | None:
    """None: numbers."""
    if flags["payload_monotonic"]:
        return None
    chance = random.Random(0)
    if flags["record_size"] is not None:
        size = flags["record_size"]
        return [bytes(chance.choices(LETTERS, k=size)) for _ in range(PAYLOADS)]
    path: Path = flags["payload_file"]
    print(f"Reading payloads from: {path.absolute()}")
    if not path.exists() or not path.stat().st_size:
        raise ToolFailed("File does not exist or empty file provided.")
    delimiter = flags["payload_delimiter"].replace("\\n", "\n")
    found = path.read_text().split(delimiter)
    while found and not found[-1]:
        found.pop()
    print(f"Number of messages read: {len(found)}")
    return [text.encode() for text in found]


def _send(
    producer: Producer,
    topic: str,
    payloads: list[bytes] | None,
    stats: Stats,
    flags: dict[str, Any],
) -> None:
    throughput: float = flags["throughput"]
    duration_ms: int = flags["transaction_duration_ms"]
    began_s = time.monotonic()
    transaction_ms: int | None = None
    for number in range(flags["num_records"]):
        payload = str(number).encode() if payloads is None else payloads[number % len(payloads)]
        sent_ms = now_ms()
        if duration_ms > 0 and transaction_ms is None:
            producer.begin_transaction()
            transaction_ms = sent_ms
        _send_one(producer, topic, payload, sent_ms, stats)
        if transaction_ms is not None and sent_ms - transaction_ms >= duration_ms:
            producer.commit_transaction()
            transaction_ms = None
        if throughput > 0:
            ahead_s = (number + 1) / throughput - (time.monotonic() - began_s)
            if ahead_s > THROTTLE_SLACK_S:
                time.sleep(ahead_s)
    if transaction_ms is not None:
        producer.commit_transaction()


def _send_one(producer: Producer, topic: str, payload: bytes, sent_ms: int, stats: Stats) -> None:
    def told(metadata: object, error: Exception | None) -> None:
        at_ms = now_ms()
        if error is not None:
            print(error, file=sys.stderr)
        else:
            stats.record(at_ms - sent_ms, len(payload), at_ms)

    producer.send(topic, payload, on_delivery=told)
