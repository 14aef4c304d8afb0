"""Declared pipelines on Spark: windows, dead letters, formats, and errors with their place."""

from __future__ import annotations

import datetime
import html
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark.conftest import missing
from tests.support.broker_process import dies_with_us
from tests.support.console_client import Answer
from tests.support.public_dashboards import DASHBOARDS, get, told_by
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.declaration.parts import Pipeline

MINUTE_MS = 60_000
OPENING = datetime.datetime(2026, 1, 5, 8, tzinfo=datetime.UTC)
DEMO_TIMEOUT_S = 500

DECLARATION = """\
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"
trigger = "available-now"

[source.visits]
topic = "{name}.visits"
schema = "page string not null, seconds bigint, at timestamp"
watermark = {{ column = "at", delay = "5 minutes" }}
options = {{ maxOffsetsPerTrigger = 400 }}

[source.notes]
topic = "{name}.notes"
format = "csv"
schema = "page string, stars int"

[view.per_page]
sql = \"\"\"
  select window.start as start, page, count(*) as visits, sum(seconds) as seconds
  from visits
  group by window(at, '10 minutes'), page
\"\"\"

[view.loved]
python = "views.py:loved"
inputs = ["notes"]

[sink.per_page]
from = "per_page"
topic = "{name}.per-page"
key = "page"

[sink.loved]
from = "loved"
parquet = "loved"
"""
VIEWS = """\
from pyspark.sql import functions as F

def shout(page):
    return page.upper()

def loved(spark, notes):
    return notes.where("stars >= 4").select(F.udf(shout, "string")("page").alias("page"))
"""


@pytest.fixture
def folder(tmp_path: Path, topics: SparkTopics, topic_name: str) -> Path:
    text = DECLARATION.format(name=topic_name, bootstrap=topics.bootstrap)
    (tmp_path / "pipeline.toml").write_text(text)
    (tmp_path / "views.py").write_text(VIEWS)
    return tmp_path


def load(folder: Path) -> Pipeline:
    from tidelog.pipeline.declaration.file import load_pipeline

    return load_pipeline(folder)


def run_to_the_end(spark: SparkSession, pipeline: Pipeline) -> dict[str, tuple[int, int]]:
    """Rows in and out of each query."""
    from tidelog.pipeline.queries.start import start_queries

    running = start_queries(spark, pipeline)
    try:
        running.watch(lambda: None, 0.2)
        running.raise_failure()
    finally:
        running.stop()
    return {name: (row.rows_in, row.rows_out) for name, row in running.progress.items()}


def visits() -> list[tuple[bytes, tuple[int, str, int] | None]]:
    """Records, with (start of the window, page, seconds) for the good ones: two visits a minute, in
    order but for every seventh, which comes three minutes late; then one a day later."""
    rows: list[tuple[bytes, tuple[int, str, int] | None]] = []
    opening_ms = int(OPENING.timestamp() * 1000)
    for number in range(1000):
        late = 6 if number % 7 == 0 and number >= 6 else 0
        at_ms = opening_ms + (number - late) * MINUTE_MS // 2
        page = f"page-{number % 3}"
        value = {"page": page, "seconds": number, "at": iso(at_ms)}
        rows.append((json.dumps(value).encode(), (at_ms // 600_000 * 600_000, page, number)))
    rows[100:100] = [(value, None) for value in BROKEN]
    closing = {"page": "page-0", "seconds": 0, "at": iso(opening_ms + 24 * 60 * MINUTE_MS)}
    return [*rows, (json.dumps(closing).encode(), None)]


BROKEN = {
    b'{"page": "cut': "is no JSON object",
    b'{"page": "x", "at": tomorrow}': "is no valid JSON",
    b'{"page": "x", "seconds": "ten", "at": "2026-01-05T08:00:00Z"}': (
        "field seconds: ten is no bigint"
    ),
    b'{"seconds": 1, "at": "2026-01-05T08:00:00Z"}': "required field page is missing",
    b'{"page": "x", "seconds": 1}': "required field at is missing",
    b'[{"page": "x"}]': "is no JSON object",
    b"\xff\xfe": "is not UTF-8",
}


def iso(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).isoformat()


def fill(topics: SparkTopics, topic: str, values: list[bytes | None]) -> None:
    import pyarrow as pa

    headers = [[{"key": "trace", "value": b"%d" % number}] for number in range(len(values))]
    topics.fill(
        topic,
        range(len(values)),
        key=pa.array([b"k%d" % number for number in range(len(values))], pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.array(
            headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        ),
    )


def records(topics: SparkTopics, topic: str) -> list[dict[str, Any]]:
    from tidelog.demo.ledger_check import read_all

    return read_all(topics.bootstrap, topic)


def windows_of(rows: list[dict[str, Any]]) -> dict[tuple[int, str], tuple[int, int]]:
    def ms(text: str) -> int:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)

    return {(ms(row["start"]), row["page"]): (row["visits"], row["seconds"]) for row in rows}


def test_windows_equal_the_answer_and_broken_rows_become_dead_letters(
    spark: SparkSession, topics: SparkTopics, topic_name: str, folder: Path
) -> None:
    for name in ("visits", "notes"):
        topics.create(f"{topic_name}.{name}")
    sent = visits()
    fill(topics, f"{topic_name}.visits", [value for value, _ in sent])
    fill(topics, f"{topic_name}.notes", [b"home,5", b"jobs,1", b"home,many", b"shop,4", None])
    progress = run_to_the_end(spark, load(folder))

    expected: dict[tuple[int, str], tuple[int, int]] = {}
    for window in (window for _, window in sent if window is not None):
        start, page, seconds = window
        count, total = expected.get((start, page), (0, 0))
        expected[start, page] = count + 1, total + seconds
    written = records(topics, f"{topic_name}.per-page")
    assert windows_of([json.loads(row["value"]) for row in written]) == expected
    assert {row["key"] for row in written} == {b"page-0", b"page-1", b"page-2"}
    assert progress["per_page"] == (len(sent), len(expected))

    loved = [row.page for row in spark.read.parquet(str(folder / "loved")).collect()]
    assert sorted(loved) == ["HOME", "SHOP"]

    dead = records(topics, f"{topic_name}.dead-letter")
    reasons = {row["value"]: dict_of(row["headers"])["dead-letter.reason"].decode() for row in dead}
    assert reasons.pop(None) == "the record has no value"
    assert reasons.pop(b"home,many") == "is no CSV row of (page string, stars int)"
    assert reasons == BROKEN
    first = next(row for row in dead if row["value"] == b'{"page": "cut')
    assert first["key"] == b"k100"
    assert dict_of(first["headers"]) == {
        "trace": b"100",
        "dead-letter.reason": b"is no JSON object",
        "dead-letter.source": b"visits",
        "dead-letter.topic": f"{topic_name}.visits".encode(),
        "dead-letter.partition": b"0",
        "dead-letter.offset": b"100",
    }
    assert len(dead) == len(BROKEN) + 2


def dict_of(headers: list[dict[str, Any]]) -> dict[str, bytes]:
    return {header["key"]: header["value"] for header in headers}


def told(spark: SparkSession, folder: Path, old: str, new: str) -> str:
    """What `validate` says after a change of the file."""
    from tidelog.pipeline.console.plan_report import plan_report
    from tidelog.pipeline.declaration.parts import PipelineError

    file = folder / "pipeline.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    try:
        with pytest.raises(PipelineError) as caught:
            plan_report(spark, load(folder))
    finally:
        file.write_text(text)
    return str(caught.value).replace(str(folder), "")


def test_validate_shows_schemas_and_plans_without_a_broker(
    spark: SparkSession, folder: Path
) -> None:
    from tidelog.pipeline.console.plan_report import plan_report

    file = folder / "pipeline.toml"
    file.write_text(file.read_text().replace("bootstrap = ", 'bootstrap = "127.0.0.1:1" # '))
    shown = "\n".join(plan_report(spark, load(folder)))
    assert "    visits                 bigint" in shown
    assert "late by 5 minutes at most (at)" in shown
    assert "plan of sink per_page" in shown
    assert "Aggregate" in shown


def test_what_spark_refuses_is_told_with_the_line_of_the_file(
    spark: SparkSession, folder: Path
) -> None:
    problem = told(spark, folder, "sum(seconds)", "sum(secnds)")
    assert problem.startswith(f"{place('select window')}: [view.per_page] sql: ")
    assert "`secnds` cannot be resolved" in problem
    problem = told(spark, folder, "from visits", "from visitors")
    assert problem == (
        f"{place('from visits')}: [view.per_page] sql: there is no `visitors`; a view sees the "
        "sources and the views above it: visits, notes"
    )
    problem = told(spark, folder, 'watermark = { column = "at", delay = "5 minutes" }', "")
    assert problem.startswith(f"{place('[sink.per_page]')}: [sink.per_page] Invalid streaming")
    assert "Give its source a watermark" in problem
    problem = told(spark, folder, "page string, stars int", "page strin")
    assert problem.startswith(f"{place('[source.notes]')}: [source.notes] schema: ")
    problem = told(spark, folder, 'column = "at"', 'column = "when"')
    assert problem.endswith("there is no such column; columns of type timestamp: at, _timestamp")
    problem = told(spark, folder, 'key = "page"', 'key = "pge"')
    assert problem.startswith(f"{place('[sink.per_page]')}: [sink.per_page] ")
    problem = told(spark, folder, "views.py:loved", "views.py:hated")
    assert problem == "/views.py: has no function hated"


def place(text: str) -> str:
    """The line of the declaration that has the text in it."""
    numbers = [n for n, line in enumerate(DECLARATION.splitlines(), 1) if text in line]
    return f"/pipeline.toml:{numbers[0]}"


@pytest.fixture
def demo(tmp_path: Path) -> list[str]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    command = [str(Path(sys.executable).parent / "tidelog"), "demo", "--port", "0"]
    small = ["--orders", "600", "--minutes", "40", "--tick", "0.02"]
    return [*command, "--data", str(tmp_path / "data"), *small]


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        dies_with_us(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def told_until(process: subprocess.Popen[str], words: str) -> str:
    """What it has printed when it has printed these; it is killed when that takes too long."""
    assert process.stdout is not None
    limit = threading.Timer(DEMO_TIMEOUT_S, process.kill)
    limit.start()
    told = ""
    try:
        for line in process.stdout:
            told += line
            if words in line:
                return told
    finally:
        limit.cancel()
    raise AssertionError(told)


def opened(base: str, path: str) -> str:
    with urllib.request.urlopen(base + path, timeout=DEMO_TIMEOUT_S) as answer:
        text: str = answer.read().decode()
        return text


def words_of(page: str) -> str:
    return Answer(body=page.encode()).words


def followed(base: str, page: str, path: str) -> str:
    """The page that the first link to the path leads to."""
    found = re.search(rf'href="({re.escape(path)}[^"]*)"', page)
    assert found is not None, page
    return opened(base, html.unescape(found[1]))


def test_the_demo_counts_every_event_and_its_console_shows_them(demo: list[str]) -> None:
    """As `make run` starts it: it serves when it has checked, until a signal ends it."""
    with started(demo) as process:
        told = told_until(process, "the web console")
        assert told.startswith("tidelog ready broker.id=0 ")
        assert told.count("✓") == 4
        assert "every event was counted" in told
        count = re.search(r"(\d+) of (\d+) broken events, (\d+) different reasons", told)
        sent = re.search(r"every event was counted: ([\d,]+) events", told)
        address = re.search(r"(http://127\.0\.0\.1:\d+)/?   the web console", told)
        assert count is not None
        assert sent is not None
        assert address is not None
        the_console_shows_the_demo(address[1], int(count[1]), sent[1])
        metrics = re.search(r"(http://\S+)   metrics for Prometheus", told)
        assert metrics is not None
        public_dashboards_are_filled(metrics[1])
        process.send_signal(signal.SIGINT)
        assert process.wait(DEMO_TIMEOUT_S) == 0


def the_console_shows_the_demo(base: str, dead: int, sent: str) -> None:
    """One comes from the list of pipelines to the pipeline, and from there to its dead letters."""
    listed = opened(base, "/pipelines")
    assert f"does not run 0 {dead} 4" in words_of(listed)
    page = followed(base, listed, "/pipelines/one")
    words = words_of(page)
    assert f"Lag 0 records not read yet Dead letters {dead}" in words
    assert words.count(" ended ") == 4
    assert re.search(rf"revenue \S+ ended \d+ {sent} ", words), words
    assert sum(int(each) for each in re.findall(r"(\d+) rows?: ", words)) == dead

    letters = words_of(followed(base, page, "/pipelines/letters"))
    assert "Dead letters of shop.dead-letter" in letters
    assert f"{dead} dead letters" in letters

    topics = opened(base, "/topics")
    for name in ("shop.orders", "shop.payments", "shop.revenue", "shop.dead-letter"):
        assert f" {name} " in words_of(topics)
        assert name in words_of(followed(base, topics, f"/topics/{name}"))


def public_dashboards_are_filled(url: str) -> None:
    """By one broker on one machine; the second time, as some things are told of what was between
    two scrapes."""
    get(url)
    told = told_by([get(url)])
    for dashboard in DASHBOARDS:
        filled = dashboard.filled(told)
        assert len(filled.by_nobody) <= 0.1 * len(dashboard.panels), filled.by_nobody
    assert 'kafka_consumergroup_lag{consumergroup="shop-check"' in get(url)


def test_without_java_the_demo_serves_the_broker_alone_until_a_signal(demo: list[str]) -> None:
    environment = {**os.environ, "JAVA_HOME": "", "PATH": str(Path(sys.executable).parent)}
    with started(demo, env=environment) as process:
        told = told_until(process, "Spark needs Java 17")
        assert told.startswith("tidelog ready ")
        address = re.search(r"(\S+?)/?   the web console", told_until(process, "the web console"))
        assert address is not None
        assert "Brokers 1" in words_of(opened(address[1], "/"))
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
