"""`tidelog perf produce|consume|latency TOPIC`: how fast a cluster is, seen from here.

    produce   records of random bytes, as fast as it goes or at a --rate
    consume   from the beginning, as objects or with --arrow as columns
    latency   one record after another: from send to the record at a waiting consumer

While it runs a line of figures is drawn anew; at the end there are the totals and, on a terminal, a
plot. `-o json` prints the totals alone. MB are millions of bytes of keys and values.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.frame import CommandFailed, together
from tidelog.tools.cli.output import say, show_data, styled
from tidelog.tools.cli.plot import over_time, percentile, short_number, spread
from tidelog.tools.cli.session import ClusterGroup, Session, pass_session
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.blocking.consumer import Consumer
    from tidelog.client.blocking.producer import Producer

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
DRAW_EVERY_S: Final = 0.25
PAYLOADS: Final = 64
PLOT_HEIGHT: Final = 8
POLL_S: Final = 0.2
RECORDS_A_POLL: Final = 20_000
ROWS_A_TABLE: Final = 20_000


class Sample(NamedTuple):
    """How much there was when."""

    at_s: float
    records: int
    bytes: int


class Meter:
    """Counts, draws the line and remembers the curve."""

    def __init__(self, what: str, target: int | None) -> None:
        self._what = what
        self._target = target
        self._is_live = sys.stderr.isatty()
        self.records = 0
        self.bytes = 0
        self.started_s = time.perf_counter()
        self.samples = [Sample(0.0, 0, 0)]
        self.ended_s = self.started_s

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        now_s = time.perf_counter() - self.started_s
        if now_s - self.samples[-1].at_s >= DRAW_EVERY_S:
            self._sample(now_s)

    def _sample(self, now_s: float) -> None:
        before = self.samples[-1]
        self.samples.append(Sample(now_s, self.records, self.bytes))
        if self._is_live:
            rate = (self.records - before.records) / (now_s - before.at_s)
            size = (self.bytes - before.bytes) / (now_s - before.at_s) / 1e6
            share = f" of {self._target:,}" if self._target else ""
            line = f"{self._what} {self.records:,}{share}  {rate:,.0f}/s  {size:,.1f} MB/s"
            sys.stderr.write(f"\r{line}  {now_s:.0f} s\x1b[K")
            sys.stderr.flush()

    def stop(self) -> None:
        self.ended_s = time.perf_counter()
        elapsed_s = self.ended_s - self.started_s
        if elapsed_s - self.samples[-1].at_s > DRAW_EVERY_S / 2:
            self.samples.append(Sample(elapsed_s, self.records, self.bytes))
        if self._is_live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @property
    def elapsed_s(self) -> float:
        return max(self.ended_s - self.started_s, 1e-9)

    def totals(self) -> dict[str, object]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.elapsed_s, 3),
            "records_per_s": round(self.records / self.elapsed_s, 1),
            "mb_per_s": round(self.bytes / self.elapsed_s / 1e6, 3),
        }

    def rates(self) -> list[float]:
        return [
            (after.records - before.records) / (after.at_s - before.at_s)
            for before, after in pairwise(self.samples)
        ]


class Latencies:
    """Milliseconds, in the order they came."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def totals(self) -> dict[str, object]:
        if not self.values:
            return {}
        ordered = sorted(self.values)
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
        found = {name: round(percentile(ordered, share), 3) for name, share in shares.items()}
        mean = sum(ordered) / len(ordered)
        return {"latency_ms": {"mean": round(mean, 3), **found, "max": round(ordered[-1], 3)}}


@click.group("perf", cls=ClusterGroup)
def command() -> None:
    """Measure producing, consuming and latency."""


topic_argument = click.argument("topic", shell_complete=complete_topics)
plot_option = click.option(
    "--plot/--no-plot", "plot", default=None, help="Draw a plot; on a terminal by default."
)
amount_options = together(
    click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="So many records."),
    click.option("--seconds", type=click.FloatRange(min=0.1), metavar="S", help="Or for so long."),
)
size_option = click.option(
    "-s",
    "--size",
    type=click.IntRange(0, 1 << 30),
    default=100,
    metavar="BYTES",
    show_default=True,
    help="Of a value.",
)


@command.command("produce")
@topic_argument
@amount_options
@size_option
@click.option("--rate", type=click.FloatRange(min=0.001), metavar="N", help="At most N records/s.")
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Compress batches.")
@click.option("--acks", type=click.Choice(("all", "1", "0")), help="Who has to have it: all.")
@click.option("--arrow", is_flag=True, help="Send columns instead of single records.")
@plot_option
@click.option("--dry-run", is_flag=True, help="Say what would be written.")
@pass_session
def produce(
    session: Session,
    topic: str,
    count: int | None,
    seconds: float | None,
    size: int,
    rate: float | None,
    compression: str | None,
    acks: str | None,
    arrow: bool,
    plot: bool | None,
    dry_run: bool,
) -> int:
    """Write records of random bytes to TOPIC; by default for 10 seconds."""
    if count is None and seconds is None:
        seconds = 10.0
    if dry_run:
        amount = f"{count:,} records" if count is not None else f"records for {seconds:g} s"
        say(f"{amount} of {size} bytes would be written to {topic}")
        return 0
    settings = {"compression.type": compression, "acks": acks}
    meter = Meter("written", count)
    latencies = Latencies()
    with session.producer({key: text for key, text in settings.items() if text}) as producer:
        producer.partitions_for(topic)
        goal = Goal(count, seconds, rate)
        meter.started_s = goal.started_s
        if arrow:
            _produce_arrow(producer, topic, size, goal, meter)
        else:
            _produce_records(producer, topic, size, goal, meter, latencies)
    meter.stop()
    _report(session, meter, latencies, plot, "records/s")
    return 0


class Goal:
    """How many are still to be made, and whether it is time for the next."""

    def __init__(self, count: int | None, seconds: float | None, rate: float | None) -> None:
        self._count = count
        self._seconds = seconds
        self._rate = rate
        self.started_s = time.perf_counter()
        self.made = 0

    def next(self, most: int) -> int:
        """How many to make now; 0 at the end. Waits where there is a rate."""
        if self._seconds is not None and time.perf_counter() - self.started_s >= self._seconds:
            return 0
        if self._rate is not None:
            due_s = self.made / self._rate - (time.perf_counter() - self.started_s)
            if due_s > 0:
                time.sleep(due_s)
            most = max(1, min(most, int(self._rate / 100)))
        wanted = most if self._count is None else min(most, self._count - self.made)
        self.made += wanted
        return wanted


def _payloads(size: int) -> list[bytes]:
    """Bytes that do not compress, and are not made anew for every record."""
    return [os.urandom(size) for _ in range(PAYLOADS)]


def _produce_records(
    producer: Producer, topic: str, size: int, goal: Goal, meter: Meter, latencies: Latencies
) -> None:
    payloads = _payloads(size)
    problems: list[Exception] = []
    clock = time.perf_counter
    record_latency = latencies.values.append

    def send(payload: bytes) -> None:
        sent_s = clock()

        def delivered(metadata: object, error: Exception | None) -> None:
            if error is not None:
                problems.append(error)
            record_latency((clock() - sent_s) * 1_000)

        producer.send(topic, payload, on_delivery=delivered)

    while (wanted := goal.next(200)) and not problems:
        for number in range(wanted):
            send(payloads[number % PAYLOADS])
        meter.add(wanted, wanted * size)
    producer.flush()
    if problems:
        raise CommandFailed(f"a record was not written: {problems[0]}")


def _produce_arrow(producer: Producer, topic: str, size: int, goal: Goal, meter: Meter) -> None:
    try:
        import pyarrow as pa
    except ImportError:
        raise CommandFailed("--arrow needs pyarrow: pip install 'tidelog[arrow]'") from None
    payloads = _payloads(size)
    rows = pa.table({"value": pa.array([payloads[n % PAYLOADS] for n in range(ROWS_A_TABLE)])})
    pending = []
    while wanted := goal.next(ROWS_A_TABLE):
        pending.append((producer.send_arrow(rows.slice(0, wanted), topic), wanted))
        while len(pending) > 4:
            delivery, count = pending.pop(0)
            delivery.result()
            meter.add(count, count * size)
    for delivery, count in pending:
        delivery.result()
        meter.add(count, count * size)


@command.command("consume")
@topic_argument
@amount_options
@click.option("--arrow", is_flag=True, help="Take columns instead of single records.")
@plot_option
@pass_session
def consume(
    session: Session,
    topic: str,
    count: int | None,
    seconds: float | None,
    arrow: bool,
    plot: bool | None,
) -> int:
    """Read TOPIC from its beginning to where it ends now."""
    meter = Meter("read", count)
    with session.consumer({"auto.offset.reset": "earliest"}) as consumer:
        places = [TopicPartition(topic, index) for index in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(places)
        meter.started_s = time.perf_counter()
        while not _is_over(meter, count, seconds):
            records, size = (_poll_arrow if arrow else _poll)(consumer)
            meter.add(records, size)
            if not records and all(consumer.position(each) >= ends[each] for each in places):
                break
    meter.stop()
    if not meter.records:
        raise CommandFailed(f"topic {topic} is empty. `tidelog perf produce {topic}` fills it.")
    _report(session, meter, Latencies(), plot, "records/s")
    return 0


def _is_over(meter: Meter, count: int | None, seconds: float | None) -> bool:
    elapsed_s = time.perf_counter() - meter.started_s
    return (count is not None and meter.records >= count) or (
        seconds is not None and elapsed_s >= seconds
    )


def _poll(consumer: Consumer) -> tuple[int, int]:
    records = consumer.poll(POLL_S, max_records=RECORDS_A_POLL)
    return len(records), sum(len(each.value or b"") + len(each.key or b"") for each in records)


def _poll_arrow(consumer: Consumer) -> tuple[int, int]:
    import pyarrow.compute as pc

    table = consumer.poll_arrow(POLL_S)
    if not len(table):
        return 0, 0
    sizes = [pc.sum(pc.binary_length(table[name])).as_py() or 0 for name in ("key", "value")]
    return len(table), sum(sizes)


@command.command("latency")
@topic_argument
@click.option(
    "-n", "--count", type=click.IntRange(min=1), default=1_000, metavar="N", show_default=True
)
@size_option
@click.option("--acks", type=click.Choice(("all", "1", "0")), help="Who has to have it: all.")
@plot_option
@click.option("--dry-run", is_flag=True, help="Say what would be written.")
@pass_session
def latency(
    session: Session,
    topic: str,
    count: int,
    size: int,
    acks: str | None,
    plot: bool | None,
    dry_run: bool,
) -> int:
    """Send one record after another to TOPIC, and wait for each at a consumer."""
    if dry_run:
        say(f"{count:,} records of {size} bytes would be written to {topic}")
        return 0
    meter = Meter("there and back", count)
    latencies = Latencies()
    settings = {"linger.ms": "0", **({"acks": acks} if acks else {})}
    with session.consumer() as consumer, session.producer(settings) as producer:
        places = [TopicPartition(topic, index) for index in consumer.partitions_for(topic)]
        consumer.assign(places)
        consumer.seek_to_end(places)
        for place in places:
            consumer.position(place)
        meter.started_s = time.perf_counter()
        for number in range(count):
            latencies.values.append(_round_trip(producer, consumer, topic, number, size, session))
            meter.add(1, size)
    meter.stop()
    _report(session, meter, latencies, plot, "")
    return 0


def _round_trip(
    producer: Producer, consumer: Consumer, topic: str, number: int, size: int, session: Session
) -> float:
    payload = number.to_bytes(8, "big") + os.urandom(max(0, size - 8))
    began_s = time.perf_counter()
    producer.send(topic, payload, key=None).result()
    while True:
        for record in consumer.poll(POLL_S):
            if record.value == payload:
                return (time.perf_counter() - began_s) * 1_000
        if time.perf_counter() - began_s > session.timeout_s:
            raise CommandFailed(f"a record did not come back from {topic} within the --timeout")


def _report(
    session: Session, meter: Meter, latencies: Latencies, plot: bool | None, unit: str
) -> None:
    totals = {**meter.totals(), **latencies.totals()}
    if session.output_format not in (None, "table"):
        show_data(session.output_format, totals)
        return
    print(
        f"{meter.records:,} records, {meter.bytes / 1e6:,.1f} MB in {meter.elapsed_s:.2f} s: "
        + styled(f"{meter.records / meter.elapsed_s:,.0f} records/s", "bold")
        + f", {meter.bytes / meter.elapsed_s / 1e6:,.1f} MB/s"
    )
    found = latencies.totals().get("latency_ms")
    if isinstance(found, dict):
        print("latency ms: " + "  ".join(f"{name} {value:.3g}" for name, value in found.items()))
    if plot is None:
        plot = sys.stdout.isatty()
    if plot:
        print()
        print("\n".join(_plot(meter, latencies.values, unit)))


def _plot(meter: Meter, latencies: Sequence[float], unit: str) -> list[str]:
    width = 60
    lines = []
    if unit:
        rates = meter.rates()
        lines += over_time(rates, width=width, height=PLOT_HEIGHT, unit=unit)
        lines.append(
            f"{'':>{len(short_number(max(rates, default=1.0)))}}  0 to {meter.elapsed_s:.1f} s"
        )
    if latencies:
        lines += ["", *spread(latencies, width=width - 20, rows=10, unit="ms")]
    return lines
