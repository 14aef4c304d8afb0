"""The check at the end of the demo: what came out, against what went in.

Four questions, each answered with numbers
    windows        the records of the result topic, each there once, equal the ledger
    batch answer   the same views, run by Spark as a batch over the topics, equal the stream's
    Parquet        every paid order is in the files, once
    dead letters   every broken event is in its topic, with a reason, and nothing else
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.pipeline.frames.dataframes import build_dataframes
from tidelog.spark.decoding import HEADER_PREFIX
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.demo.shop import Ledger
    from tidelog.pipeline.declaration.parts import Pipeline

GROUP: Final = "shop-check"  # lag tools show how far the check has read
# (start of the window in ms, category) to (orders, cents).
Windows = dict[tuple[int, str], tuple[int, int]]


class Finding(NamedTuple):
    is_right: bool
    name: str
    told: str


class LedgerCheck:
    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, ledger: Ledger, closing_ms: int
    ) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.closing_ms = closing_ms
        self.ledger = ledger
        self.expected: Windows = {
            window: (orders, cents) for window, (orders, cents) in ledger.windows.items()
        }

    def findings(self) -> list[Finding]:
        streamed, repeats = self._streamed_windows()
        batch = self._batch_windows()
        return [
            self._windows(streamed, repeats),
            self._batch(streamed, batch),
            self._parquet(),
            self._dead_letters(),
        ]

    def _windows(self, streamed: Windows, repeats: int) -> Finding:
        orders, cents = _totals(streamed)
        told = f"{len(streamed)} windows, {orders:,} paid orders, {cents / 100:,.2f} in all"
        if repeats:
            told += f"; {repeats} are there more than once"
        if streamed != self.expected:
            told += f"; expected {len(self.expected)} windows, {self.ledger.paid:,} paid orders"
        is_right = streamed == self.expected and not repeats
        return Finding(is_right, "windows equal what was sent", told)

    def _batch(self, streamed: Windows, batch: Windows) -> Finding:
        orders, _ = _totals(batch)
        told = f"the same SQL over the whole topics gives {len(batch)} windows, {orders:,} orders"
        return Finding(batch == streamed, "stream equals batch", told)

    def _parquet(self) -> Finding:
        sink = next(sink for sink in self.pipeline.sinks if sink.kind == "parquet")
        rows = self.spark.read.parquet(sink.target)
        count, distinct = rows.count(), rows.select("order_id").distinct().count()
        expected = self.ledger.paid + self.ledger.paid_after
        is_right = count == distinct == expected
        told = f"{count:,} paid orders in Parquet files, each once"
        return Finding(
            is_right, "joined rows", told if is_right else f"{told}? expected {expected:,}"
        )

    def _dead_letters(self) -> Finding:
        reasons: Counter[str] = Counter()
        for topic in self.pipeline.dead_letter_topics:
            for row in self._records_of(topic):
                headers = {header["key"]: header["value"] for header in row["headers"] or ()}
                reasons[headers.get(f"{HEADER_PREFIX}reason", b"").decode()] += 1
        count = reasons.total()
        told = (
            f"{count:,} of {self.ledger.broken:,} broken events, {len(reasons)} different reasons"
        )
        is_right = count == self.ledger.broken and "" not in reasons
        return Finding(is_right, "dead letters", told)

    def _streamed_windows(self) -> tuple[Windows, int]:
        """The windows, and how many records there are beyond one of each."""
        sink = next(sink for sink in self.pipeline.sinks if sink.kind == "topic")
        rows = [json.loads(row["value"]) for row in self._records_of(sink.target)]
        windows = _windows_of(rows)
        return windows, len(rows) - len(windows)

    def _batch_windows(self) -> Windows:
        """The window that the next day's order opened is not closed, so not in the stream."""
        frames = build_dataframes(self.spark, self.pipeline, streaming=False)
        sink = next(sink for sink in self.pipeline.sinks if sink.kind == "topic")
        found = _windows_of(_collected(frames.by_name[sink.source]))
        return {window: row for window, row in found.items() if window[0] < self.closing_ms}

    def _records_of(self, topic: str) -> list[dict[str, Any]]:
        return read_all(self.pipeline.bootstrap, topic, group=GROUP)


def read_all(bootstrap: str, topic: str, *, group: str = "") -> list[dict[str, Any]]:
    """Every committed record of a topic, as the client gives them; none if the topic is not there.
    A group gets the offsets of what was read."""
    from tidelog.client.blocking.cluster import BlockingCluster
    from tidelog.client.columns.range_reader import FetchRange, RangeReader

    config = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    with BlockingCluster(config) as cluster:
        view = cluster.topics([topic])[topic]
        partitions = [TopicPartition(topic, index) for index in view.partitions]
        starts, ends = cluster.earliest_offsets(partitions), cluster.latest_offsets(partitions)
        ranges = [FetchRange(row, starts[row], ends[row]) for row in partitions]
        reader = RangeReader(cluster, with_headers=True)
        rows = [row for batch in reader.fetch_ranges(ranges) for row in batch.to_pylist()]
        if group:
            cluster.commit_offsets(group, ends)
        return rows


def _collected(frame: DataFrame) -> list[dict[str, Any]]:
    text = frame.selectExpr("to_json(struct(*)) as text").collect()
    return [json.loads(row.text) for row in text]


def _windows_of(rows: list[dict[str, Any]]) -> Windows:
    return {
        (_ms(row["window_start"]), row["category"]): (row["orders"], row["amount_cents"])
        for row in rows
    }


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _totals(windows: Windows) -> tuple[int, int]:
    return sum(row[0] for row in windows.values()), sum(row[1] for row in windows.values())
