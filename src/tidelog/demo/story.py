"""The demo from beginning to end: broker, events, pipeline, check; and what it says meanwhile.

The broker serves first, within a fraction of a second. Then events are written while Spark starts,
the pipeline reads them, and when all are written and read the results are checked. Without Spark
the broker serves alone. Whatever happens, everything is stopped in the reverse order.
"""

from __future__ import annotations

import datetime
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from tidelog.broker_process import BrokerProcess, ConsoleProcess
from tidelog.errors import StartupError
from tidelog.stop_signals import interrupt_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.demo.event_feed import EventFeed
    from tidelog.demo.ledger_check import Finding
    from tidelog.demo.shop import Shop
    from tidelog.pipeline.declaration.parts import Pipeline
    from tidelog.pipeline.queries.run_status import StatusFile
    from tidelog.pipeline.queries.running import RunningPipeline

POLL_S: Final = 0.5
HEADINGS: Final = (
    *("time", "sent", "read", "rows/s in", "out", "lag", "batch", "joined", "windows"),
    "dead letters",
)
# A run this short ends before the JVM's second compiler has paid for itself.
SHORT_RUN: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
BROKER_STOP_TIMEOUT_S: Final = 15.0
FAILED: Final = 1
INTERRUPTED: Final = 130

_LISTENER = re.compile(r"listeners=\w+://([^\s,]+)")


@dataclass(frozen=True, slots=True)
class DemoSettings:
    directory: Path
    port: int = 9092
    once: bool = False
    orders: int = 40_000
    minutes: int = 120  # of the shop's time
    tick_s: float = 0.3  # a minute of the shop's time, on the wall
    console_port: int | None = None  # 0: any free one; None: there is no console
    metrics_port: int | None = None

    @property
    def pipeline_folder(self) -> Path:
        return self.directory / "pipeline"


class DemoBroker:
    """In a process of its own. Its log is a file in the demo's directory."""

    def __init__(self, settings: DemoSettings) -> None:
        self.log_file = settings.directory / "broker.log"
        self.data_directory = settings.directory / "log"
        self.port = settings.port
        self.metrics = ""  # where its metrics are, if it tells them
        if settings.metrics_port is not None:
            self.metrics = f"http://127.0.0.1:{settings.metrics_port}"
        self.ready_line = ""
        self.bootstrap = ""
        self._process: BrokerProcess | None = None

    def start(self) -> None:
        """Returns when it serves; raises what it said when it cannot."""
        self.data_directory.mkdir(parents=True, exist_ok=True)
        overrides = {
            "log.dirs": str(self.data_directory),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }
        if self.metrics:
            overrides["tidelog.metrics.listener"] = self.metrics
        with self.log_file.open("w") as log:
            self._process = BrokerProcess(overrides, stderr=log)
        self.ready_line = self._process.wait_until_ready()
        found = _LISTENER.search(self.ready_line)
        if found is None:
            self.stop()
            raise StartupError(self._last_words())
        self.bootstrap = found[1]

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.exit_code() is None

    def stop(self) -> int:
        """Its exit code."""
        return 0 if self._process is None else self._process.stop(BROKER_STOP_TIMEOUT_S)

    def _last_words(self) -> str:
        words = self.log_file.read_text(errors="replace").strip().splitlines()
        last = words[-1] if words else "the broker ended without a word"
        return last.removeprefix("tidelog: error: ")


class DemoConsole:
    """The web console beside the broker, in a process of its own with a log file of its own."""

    def __init__(self, settings: DemoSettings) -> None:
        self._settings = settings
        self._process: ConsoleProcess | None = None
        self._address = ""

    def start(self, broker: DemoBroker) -> None:
        """Returns at once: nothing waits for it."""
        folder = self._settings.pipeline_folder
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--listen", f"http://127.0.0.1:{self._settings.console_port}"]
        options += ["--logs", str(broker.data_directory), "--pipelines", str(folder)]
        if broker.metrics:
            options += ["--metrics", f"{broker.metrics}/metrics"]
        properties = {"bootstrap.servers": broker.bootstrap}
        with (self._settings.directory / "console.log").open("w") as log:
            self._process = ConsoleProcess(properties, *options, stderr=log)

    def address(self) -> str:
        """Empty where it could not start."""
        if self._process is not None and not self._address:
            self._address = self._process.wait_for_address()
        return self._address

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(BROKER_STOP_TIMEOUT_S)


class Demo:
    def __init__(self, settings: DemoSettings, out: TextIO) -> None:
        self.settings = settings
        self.out = out
        self.broker = DemoBroker(settings)
        self.console = DemoConsole(settings)
        self.started_s = time.monotonic()
        self.feed: EventFeed | None = None
        self.spark: SparkSession | None = None
        self.running: RunningPipeline | None = None
        self.status: StatusFile | None = None

    def run(self) -> int:
        """The exit code: 0 when the check is green, or it was stopped while serving."""
        interrupt_on_signals()
        try:
            self.broker.start()
            self._say(self.broker.ready_line)
            if self.settings.console_port is not None:
                self.console.start(self.broker)
            code = self._pipeline()
            if not self.settings.once:
                code = self._serve()
            return code
        except KeyboardInterrupt:
            self._say("\n  stopping")
            return INTERRUPTED if self.settings.once else 0
        finally:
            self._stop()

    # The parts of the story

    def _pipeline(self) -> int:
        """0 when the check is green."""
        from tidelog.pipeline.spark_session import missing

        reason = missing()
        if reason is not None:
            self._say(f"\n  no pipeline here: {reason}")
            return FAILED
        pipeline, shop = self._prepare()
        self._introduce(pipeline, shop)
        self._start(pipeline, shop)
        self._watch()
        findings = self._check(pipeline, shop)
        self._stop_pipeline()
        return self._conclude(findings, shop)

    def _prepare(self) -> tuple[Pipeline, Shop]:
        """Topics and folder of the demo are made anew, so that every run counts from nothing."""
        from tidelog.client.blocking.admin import Admin
        from tidelog.client.errors import UnknownTopic
        from tidelog.demo.shop import Shop
        from tidelog.pipeline.declaration.example import write_example
        from tidelog.pipeline.declaration.file import load_pipeline
        from tidelog.pipeline.topics import prepare_topics

        folder = self.settings.pipeline_folder
        shutil.rmtree(folder, ignore_errors=True)
        write_example(folder, self.broker.bootstrap)
        declared = load_pipeline(folder)
        pipeline = replace(declared, spark={**declared.spark, **SHORT_RUN})
        topics = [topic for source in pipeline.sources for topic in source.topics]
        topics += [sink.target for sink in pipeline.sinks if sink.kind == "topic"]
        with Admin({"bootstrap.servers": self.broker.bootstrap}) as admin:
            removed = admin.delete_topics([*topics, *pipeline.dead_letter_topics])
        for result in removed.values():
            if not isinstance(result.error, UnknownTopic):
                result.get()
        prepare_topics(pipeline)
        today = datetime.datetime.now(datetime.UTC).date()
        shop = Shop(today, orders=self.settings.orders, minutes=self.settings.minutes)
        return pipeline, shop

    def _introduce(self, pipeline: Pipeline, shop: Shop) -> None:
        said = (
            ("broker", f"speaks Kafka on {self.broker.bootstrap}; {self.broker.data_directory}/"),
            ("events", f"{self.settings.orders:,} orders of a shop's morning and their payments"),
            ("", "some late, some never paid, some broken on purpose"),
            ("pipeline", f"{pipeline.file}, run by Spark"),
            ("", "orders joined with payments -> Parquet, 10-minute windows -> a topic"),
            ("check", "every event is counted in the end, or this run fails"),
        )
        self._say("")
        for name, text in said:
            self._say(f"  {self._painted(f'{name:<9}', '1')} {text}")
        self._say("\n  Spark is starting, events are being written ...\n")

    def _start(self, pipeline: Pipeline, shop: Shop) -> None:
        from tidelog.demo.event_feed import EventFeed
        from tidelog.pipeline.queries.run_status import StatusFile
        from tidelog.pipeline.queries.start import start_queries
        from tidelog.pipeline.spark_session import open_session

        self.feed = EventFeed(shop, self.broker.bootstrap, tick_s=self.settings.tick_s)
        self.feed.start()
        self.spark = open_session(pipeline, self.settings.directory / "spark.log")
        # Spark has put a handler of its own in the place of ours.
        interrupt_on_signals()
        self.running = start_queries(self.spark, pipeline)
        self.status = StatusFile(self.settings.pipeline_folder)

    def _watch(self) -> None:
        """Until all events are written and read, and every window that can close has closed."""
        from tidelog.pipeline.console.terminal import LiveLines

        assert self.feed is not None
        assert self.running is not None
        assert self.status is not None
        live = LiveLines(self.out)
        self._say(self._painted(_columns(HEADINGS), "2"))
        while not self._is_all_read(self.feed, self.running):
            self.status.tell(self.running)
            live.show(self._progress_lines(self.feed, self.running))
            time.sleep(POLL_S)
        self.running.process_all_available()
        self.running.refresh()
        live.show(self._progress_lines(self.feed, self.running), force=True)
        live.end()

    def _is_all_read(self, feed: EventFeed, running: RunningPipeline) -> bool:
        if not self.broker.is_alive:
            raise StartupError(f"the broker has ended; see {self.broker.log_file}")
        if feed.failure is not None:
            raise StartupError(f"the events could not be written: {feed.failure}")
        running.refresh()
        running.raise_failure()
        if feed.is_alive():
            return False
        return running.progress["revenue"].rows_in >= feed.sent

    def _progress_lines(self, feed: EventFeed, running: RunningPipeline) -> list[str]:
        windows = running.progress["revenue"]
        row = [f"{time.monotonic() - self.started_s:.0f} s", f"{feed.sent:,}"]
        if windows.batch_id < 0:
            return [_columns(row) + "   Spark works on its first batch"]
        row += (
            f"{windows.rows_in:,}",
            f"{windows.rows_in_per_s:,.0f}",
            f"{windows.rows_out_per_s:,.0f}",
            f"{max(0, feed.sent - windows.rows_in):,}",
            f"{windows.batch_ms / 1000:.1f} s",
            f"{running.progress['paid_orders'].rows_out:,}",
            f"{windows.rows_out:,}",
            f"{_dead_letters(running):,}",
        )
        return [_columns(row)]

    def _check(self, pipeline: Pipeline, shop: Shop) -> list[Finding]:
        from tidelog.demo.ledger_check import LedgerCheck

        assert self.spark is not None
        self._say("\n  all read; checking ...\n")
        return LedgerCheck(self.spark, pipeline, shop.ledger, shop.closing_ms).findings()

    def _conclude(self, findings: Sequence[Finding], shop: Shop) -> int:
        is_green = all(finding.is_right for finding in findings)
        for row in findings:
            mark = self._painted("✓", "32") if row.is_right else self._painted("✗", "31")
            self._say(f"  {mark} {row.name:<28} {row.told}")
        ledger = shop.ledger
        took_s = time.monotonic() - self.started_s
        told = f"{ledger.events:,} events ({ledger.late:,} late, {ledger.broken:,} broken)"
        if is_green:
            self._say(
                "\n  " + self._painted(f"every event was counted: {told}, {took_s:.0f} s", "1;32")
            )
        else:
            self._say("\n  " + self._painted(f"NOT every event was counted: {told}", "1;31"))
        return 0 if is_green else FAILED

    def _serve(self) -> int:
        """Until a signal ends it; 1 when the broker ends by itself."""
        self._say(f"\n  still serving on {self.broker.bootstrap}; Ctrl-C stops it. Meanwhile:")
        self._say(f"    kcat -b {self.broker.bootstrap} -L")
        folder = self.settings.pipeline_folder
        if folder.exists():
            self._say(f"    kcat -b {self.broker.bootstrap} -C -e -t shop.revenue")
            self._say(f"    tidelog pipeline validate {folder}")
        if self.broker.metrics:
            self._say(f"    {self.broker.metrics}/metrics   metrics for Prometheus")
        address = self.console.address()
        if address:
            self._say(f"    {address}   the web console")
        while self.broker.is_alive:
            time.sleep(POLL_S)
        self._say(f"  the broker has ended; see {self.broker.log_file}")
        return FAILED

    # The end

    def _stop(self) -> None:
        if self.feed is not None:
            self.feed.stop()
        self._stop_pipeline()
        self.console.stop()
        self.broker.stop()

    def _stop_pipeline(self) -> None:
        if self.running is not None:
            self.running.stop()
            if self.status is not None:
                self.status.tell(self.running, has_ended=True)
            self.running = None
        if self.spark is not None:
            self.spark.stop()
            self.spark = None

    def _say(self, line: str) -> None:
        self.out.write(line + "\n")
        self.out.flush()

    def _painted(self, text: str, code: str) -> str:
        from tidelog.pipeline.console.terminal import painted

        return painted(text, code, self.out)


def _dead_letters(running: RunningPipeline) -> int:
    from tidelog.pipeline.queries.checkpoint import LETTERS_PREFIX

    rows = running.progress.items()
    return sum(row.rows_out for name, row in rows if name.startswith(LETTERS_PREFIX))


def run_demo(settings: DemoSettings) -> int:
    return Demo(settings, sys.stdout).run()


def _columns(texts: Sequence[str]) -> str:
    return "  " + "".join(
        f"{text:>{max(len(heading), 6) + 2}}"
        for heading, text in zip(HEADINGS, texts, strict=False)
    )
