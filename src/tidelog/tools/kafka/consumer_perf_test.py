"""kafka-consumer-perf-test: reads records as a member of a group, and prints rates.

--date-format takes the letters of Java's SimpleDateFormat that its default uses: yyyy MM dd HH mm
ss SSS. --print-metrics is refused: this client keeps no metrics.
"""

from __future__ import annotations

import random
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.cli.completion import complete_topics
from tidelog.tools.cli.session import Session, pass_session
from tidelog.tools.kafka.frame import (
    KafkaTool,
    ToolFailed,
    bootstrap_server,
    config_file,
    require_server,
    wrong_usage,
)

if TYPE_CHECKING:
    from tidelog.client.blocking.consumer import Consumer

MIB: Final = 1024 * 1024
POLL_S: Final = 0.1
FETCH_COLUMNS: Final = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
COLUMNS: Final = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec" + FETCH_COLUMNS
DATE_LETTERS: Final = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Totals:
    """What was read, and how long the group took to assign."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.join_ms = 0
        self.join_started_ms = now_ms()

    def on_partitions_revoked(self, partitions: object) -> None:
        self.join_started_ms = now_ms()

    def on_partitions_lost(self, partitions: object) -> None:
        self.join_started_ms = now_ms()

    def on_partitions_assigned(self, partitions: object) -> None:
        self.join_ms += now_ms() - self.join_started_ms


@click.command("kafka-consumer-perf-test", cls=KafkaTool)
@bootstrap_server
@click.option("--broker-list", metavar="HOST:PORT", help="DEPRECATED: use --bootstrap-server.")
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="REQUIRED.")
@click.option("--messages", type=int, metavar="N", help="REQUIRED.")
@click.option("--group", metavar="ID")
@click.option("--fetch-size", type=int, default=1 << 20, metavar="BYTES")
@click.option("--from-latest", is_flag=True)
@click.option("--socket-buffer-size", type=int, default=2 << 20, metavar="BYTES")
@click.option("--threads", type=int, hidden=True)
@click.option("--num-fetch-threads", type=int, hidden=True)
@config_file("--consumer.config")
@click.option("--print-metrics", is_flag=True)
@click.option("--show-detailed-stats", is_flag=True)
@click.option("--timeout", type=int, default=10_000, metavar="MS", show_default=True)
@click.option("--reporting-interval", type=int, default=5_000, metavar="MS", show_default=True)
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", metavar="FORMAT")
@click.option("--hide-header", is_flag=True)
@pass_session
def command(session: Session, **flags: Any) -> int:
    """Measure the consumer."""
    require_server(session, flags["broker_list"])
    if flags["threads"] is not None or flags["num_fetch_threads"] is not None:
        print(
            "WARNING: option [threads] and [num-fetch-threads] have been deprecated and will be "
            "ignored by the test"
        )
    for name in ("topic", "messages"):
        if flags[name] is None:
            raise wrong_usage(f'Missing required argument "[{name}]"')
    if flags["print_metrics"]:
        raise ToolFailed("--print-metrics: this client keeps no metrics")
    if flags["reporting_interval"] <= 0:
        raise ToolFailed("Reporting interval must be greater than 0.")
    is_detailed = flags["show_detailed_stats"]
    if not flags["hide_header"]:
        print(("time, threadId, " if is_detailed else "start.time, end.time, ") + COLUMNS)
    session.properties.update(
        {
            "client.id": "perf-consumer-client",
            "group.id": flags["group"] or f"perf-consumer-{random.randrange(100_000)}",
            "receive.buffer.bytes": str(flags["socket_buffer_size"]),
            "max.partition.fetch.bytes": str(flags["fetch_size"]),
            "auto.offset.reset": "latest" if flags["from_latest"] else "earliest",
        }
    )
    totals = Totals()
    with session.consumer() as consumer:
        started_ms = now_ms()
        _consume(consumer, totals, flags)
        ended_ms = now_ms()
    if not is_detailed:
        print(total_line(totals, started_ms, ended_ms, flags["date_format"]))
    return 0


def _consume(consumer: Consumer, totals: Totals, flags: dict[str, Any]) -> None:
    consumer.subscribe([flags["topic"]], listener=totals)  # type: ignore[arg-type]
    reported_ms = last_ms = now_ms()
    before = (0, 0, 0)
    while totals.messages < flags["messages"] and now_ms() - last_ms <= flags["timeout"]:
        records = consumer.poll(POLL_S)
        at_ms = now_ms()
        if records:
            last_ms = at_ms
        totals.messages += len(records)
        totals.bytes += sum(len(each.key or b"") + len(each.value or b"") for each in records)
        if records and at_ms - reported_ms >= flags["reporting_interval"]:
            if flags["show_detailed_stats"]:
                print(progress_line(totals, before, reported_ms, at_ms, flags["date_format"]))
            reported_ms = at_ms
            before = (totals.bytes, totals.messages, totals.join_ms)
    if totals.messages < flags["messages"]:
        print(
            "WARNING: Exiting before consuming the expected number of messages: timeout "
            f"({flags['timeout']} ms) exceeded. You can use the --timeout option to increase the "
            "timeout."
        )


def progress_line(
    totals: Totals, before: tuple[int, int, int], from_ms: int, to_ms: int, date_format: str
) -> str:
    elapsed_ms = to_ms - from_ms
    size = (totals.bytes - before[0]) / MIB
    count = totals.messages - before[1]
    join_ms = totals.join_ms - before[2]
    fetch_ms = elapsed_ms - join_ms
    fetch_size = 0.0 if fetch_ms <= 0 else 1000.0 * size / fetch_ms
    fetch_rate = 0.0 if fetch_ms <= 0 else 1000.0 * count / fetch_ms
    return (
        f"{java_date(to_ms, date_format)}, 0, {totals.bytes / MIB:.4f}, "
        f"{1000.0 * size / elapsed_ms:.4f}, {totals.messages}, {1000.0 * count / elapsed_ms:.4f}, "
        f"{join_ms}, {fetch_ms}, {fetch_size:.4f}, {fetch_rate:.4f}"
    )


def total_line(totals: Totals, from_ms: int, to_ms: int, date_format: str) -> str:
    elapsed_s = max(1, to_ms - from_ms) / 1000.0
    fetch_ms = (to_ms - from_ms) - totals.join_ms
    fetch_s = fetch_ms / 1000.0 or 1e-3
    size = totals.bytes / MIB
    return (
        f"{java_date(from_ms, date_format)}, {java_date(to_ms, date_format)}, {size:.4f}, "
        f"{size / elapsed_s:.4f}, {totals.messages}, {totals.messages / elapsed_s:.4f}, "
        f"{totals.join_ms}, {fetch_ms}, {size / fetch_s:.4f}, {totals.messages / fetch_s:.4f}"
    )


def java_date(at_ms: int, text: str) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000)
    for letters, directive in DATE_LETTERS.items():
        text = text.replace(letters, moment.strftime(directive))
    return text.replace("SSS", f"{at_ms % 1000:03d}")
