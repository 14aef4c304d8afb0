"""Live figures of one streaming query, out of the progress reports that Spark makes. No pyspark.

Rows out are counted by an observed metric, since not every sink of Spark counts what it writes.
Lag is what the source has seen in the topics and not yet read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

OUT_METRIC: Final = "tidelog_rows_out"


class QueryFigures:
    """Reports may be given more than once; each counts once."""

    def __init__(self) -> None:
        self.batch_id = -1
        self.rows_in = 0
        self.rows_out = 0
        self.rows_in_per_s = 0.0
        self.rows_out_per_s = 0.0
        self.lag = 0
        self.batch_ms = 0
        self.rows_too_late = 0
        self._last = ""

    def take(self, progress: Mapping[str, Any]) -> None:
        moment = str(progress["timestamp"])
        if moment <= self._last:
            return
        self._last = moment
        rows_in = sum(int(source["numInputRows"]) for source in progress["sources"])
        rows_out = _rows_out(progress)
        batch_ms = int(progress["durationMs"].get("triggerExecution", 0))
        self.batch_id = int(progress["batchId"])
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.rows_too_late += sum(
            int(operator.get("numRowsDroppedByWatermark", 0))
            for operator in progress.get("stateOperators", ())
        )
        self.lag = sum(source_lag(source) for source in progress["sources"])
        if "addBatch" in progress["durationMs"]:
            self.batch_ms = batch_ms
        seconds = max(batch_ms, 1) / 1000
        self.rows_in_per_s = rows_in / seconds
        self.rows_out_per_s = rows_out / seconds


def source_lag(source: Mapping[str, Any]) -> int:
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    return sum(
        max(0, offset - end.get(partition, {}).get(index, 0))
        for partition, offsets in latest.items()
        for index, offset in offsets.items()
    )


def _offsets(told: Any) -> dict[str, dict[str, int]]:
    """Of each topic's partitions. Spark gives offsets as JSON, or as text of JSON; a topic's id may
    be among them.
    """
    found = json.loads(told) if isinstance(told, str) else told
    if not isinstance(found, dict):
        return {}
    return {
        topic: {index: offset for index, offset in rows.items() if isinstance(offset, int)}
        for topic, rows in found.items()
    }


def _rows_out(progress: Mapping[str, Any]) -> int:
    """The metric by name, or its values alone as Spark Connect reports them."""
    observed = progress.get("observedMetrics", {}).get(OUT_METRIC) or {}
    values = observed.get("values", [observed.get("rows")])
    return int(values[0] or 0)
