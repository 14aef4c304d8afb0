"""A flood of one event is cut and counted."""

from __future__ import annotations

import logging

from tidelog.tools.cli.logging_setup import LINES_MAX, WINDOW_S, FloodFilter, LogfmtFormatter


def record(event: str | None, created: float) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": "it happened", "name": "tidelog", "created": created})
    if event is not None:
        made.event = event
    return made


def test_a_flood_of_one_event_is_cut_and_counted() -> None:
    flood = FloodFilter()
    passed = [flood.filter(record("slow-request", 5.0)) for _ in range(LINES_MAX + 7)]
    assert passed == [True] * LINES_MAX + [False] * 7
    assert flood.filter(record("topic-created", 5.0))
    later = record("slow-request", 5.0 + WINDOW_S)
    assert flood.filter(later)
    assert LogfmtFormatter().format(later).endswith("event=slow-request suppressed=7")
    assert not hasattr(record("slow-request", 6.0 + WINDOW_S), "suppressed")


def test_lines_of_no_event_all_pass() -> None:
    flood = FloodFilter()
    assert all(flood.filter(record(None, 1.0)) for _ in range(10 * LINES_MAX))


def test_a_clock_that_goes_back_cuts_nothing_for_long() -> None:
    flood = FloodFilter()
    for _ in range(LINES_MAX + 1):
        flood.filter(record("slow-request", 1_000.0))
    assert flood.filter(record("slow-request", 1.0))
