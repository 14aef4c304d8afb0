from __future__ import annotations

from typing import Any

from tidelog.pipeline.queries.running import OUT_METRIC, QueryProgress


def report(second: int, *, rows: int, out: int, batch: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-05T08:00:{second:02d}.000Z",
        "batchId": batch,
        "durationMs": {"triggerExecution": 500, "addBatch": 300},
        "sources": [
            {
                "numInputRows": rows,
                "endOffset": '{"t": {"0": 10, "1": 5}}',
                "latestOffset": '{"t": {"0": 12, "1": 9, "2": 1}}',
            }
        ],
        "observedMetrics": {OUT_METRIC: {"rows": out}},
        **more,
    }


def test_rows_add_up_and_each_report_counts_once() -> None:
    progress = QueryProgress()
    for row in (report(1, rows=100, out=10), report(1, rows=100, out=10)):
        progress.take(row)
    progress.take(report(2, rows=50, out=0, batch=1))
    assert (progress.rows_in, progress.rows_out, progress.batch_id) == (150, 10, 1)


def test_rates_are_those_of_the_last_batch() -> None:
    progress = QueryProgress()
    progress.take(report(1, rows=100, out=10))
    assert (progress.rows_in_per_s, progress.rows_out_per_s, progress.batch_ms) == (200, 20, 500)


def test_a_trigger_without_a_batch_leaves_the_time_of_the_last_one() -> None:
    progress = QueryProgress()
    progress.take(report(1, rows=100, out=10))
    progress.take(report(2, rows=0, out=0, durationMs={"triggerExecution": 3}))
    assert (progress.rows_in_per_s, progress.batch_ms) == (0, 500)


def test_lag_counts_partitions_that_were_never_read() -> None:
    progress = QueryProgress()
    progress.take(report(1, rows=0, out=0))
    assert progress.lag == 2 + 4 + 1


def test_rows_that_came_too_late_are_counted() -> None:
    progress = QueryProgress()
    progress.take(report(1, rows=9, out=0, stateOperators=[{"numRowsDroppedByWatermark": 3}]))
    assert progress.rows_too_late == 3


def test_rows_out_are_found_in_the_reports_of_spark_connect_too() -> None:
    progress = QueryProgress()
    progress.take(report(1, rows=9, out=0, observedMetrics={OUT_METRIC: {"values": [7]}}))
    progress.take(report(2, rows=0, out=0, observedMetrics={}))
    assert progress.rows_out == 7
