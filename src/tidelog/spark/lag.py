"""How far a streaming query is behind the topics that it reads; for any PySpark program.

Spark's progress reports have the end of the last batch and what the source saw in the topics then.
Lag is the difference, so it is as old as the last report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.spark.offsets import MalformedOffsets, PartitionOffsets, StreamOffset
from tidelog.types import TopicPartition


def query_lag(query: Any) -> dict[TopicPartition, int]:
    """Records that a StreamingQuery has not read, by partition; empty before its first report."""
    progress = query.lastProgress
    if progress is None:
        return {}
    lag: dict[TopicPartition, int] = {}
    for source in json.loads(progress.json)["sources"]:
        lag |= source_lag(source)
    return lag


def source_lag(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Of one source in a progress report. A source of another kind has none."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    return {
        partition: max(0, offset - end.get(partition, 0)) for partition, offset in latest.items()
    }


def _offsets(told: Any) -> PartitionOffsets:
    """Spark gives offsets as JSON, or as text of JSON."""
    try:
        return StreamOffset.from_json(json.loads(told) if isinstance(told, str) else told).offsets
    except MalformedOffsets:
        return {}
