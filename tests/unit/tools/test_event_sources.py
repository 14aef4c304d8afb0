"""Where `tidelog explain` has events from: answers of brokers and log files, hostile ones too."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from tidelog.tools.explain.event_sources import (
    bounded_lines,
    clock_difference,
    file_events,
    gather,
    listener_url,
    page_events,
)
from tidelog.tools.explain.events import LINE_MAX

AT = "2026-11-18T08:00:00.000Z"
AT_S = 1_794_988_800.0
SHRINK = f"time={AT} level=info event=isr-changed partition=orders-0 isr=[1]"


def page(*events: dict[str, object], **head: object) -> str:
    first = {"broker_id": 2, "now": AT, "kept_of_each_event": 3, "fell_out": {}, **head}
    return "".join(json.dumps(each) + "\n" for each in (first, *events))


def test_times_of_a_broker_whose_clock_is_wrong_are_corrected() -> None:
    text = page({"event": "isr-changed", "time": AT})
    events, problems = page_events("http://b", text, AT_S - 60, AT_S - 60)
    assert events[0].at_ms == int((AT_S - 60) * 1_000)
    assert events[0].broker_id == 2
    assert problems == ["the clock of broker 2 is 60000 ms ahead of this one; times are corrected"]
    assert clock_difference(int(AT_S * 1_000), AT_S - 3, AT_S + 3) == 0


def test_what_an_answer_lacks_is_passed_on() -> None:
    text = page(fell_out={"isr-changed": 4}, left_out=9, is_logged=False, since=AT)
    _, problems = page_events("http://b", text, AT_S, AT_S)
    assert len(problems) == 4
    assert any("forgotten its oldest events (isr-changed)" in each for each in problems)


@pytest.mark.parametrize("text", ["", "<html>", "[]", '{"other": 1}', "[" * 5_000])
def test_an_answer_of_something_else_is_no_history(text: str) -> None:
    events, (problem,) = page_events("http://b", text, AT_S, AT_S)
    assert events == []
    assert "no tidelog broker" in problem


def test_an_address_where_nobody_listens_is_told() -> None:
    found = gather(["http://127.0.0.1:1", "file:///etc/passwd"], [], {"partition": "orders-0"})
    assert found.events == []
    assert len(found.unknown) == 2


def test_a_listener_is_found_by_its_setting() -> None:
    assert listener_url("http://0.0.0.0:9308", "kafka-1") == "http://kafka-1:9308"
    assert listener_url("http://127.0.0.1:9308", "kafka-1") == "http://127.0.0.1:9308"
    assert listener_url("http://127.0.0.1:0", "kafka-1") is None
    assert listener_url("http://127.0.0.1:70000", "kafka-1") is None
    assert listener_url("", "kafka-1") is None


def test_a_file_is_the_log_of_one_broker_unless_its_lines_are_labelled() -> None:
    started = f"time={AT} level=info event=broker-started broker_id=4"
    events = file_events([SHRINK, started, f"broker=9 {SHRINK}"], {"partition": "orders-0"})
    assert [each.broker_id for each in events] == [4, 4, 9]
    others = file_events([SHRINK, started], {"partition": "orders-1"})
    assert [each.name for each in others] == ["broker-started"]


def test_a_line_without_end_is_not_held_in_memory() -> None:
    endless = b"event=x " * (LINE_MAX // 2)
    lines = list(bounded_lines(io.BytesIO(endless + b"\n" + SHRINK.encode() + b"\nlast")))
    assert lines == [SHRINK + "\n", "last"]


def test_a_compressed_log_is_read_and_an_event_is_told_once(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.log", tmp_path / "a.log.gz"
    plain.write_text(SHRINK)
    packed.write_bytes(gzip.compress(SHRINK.encode()))
    found = gather([], [plain, packed], {"partition": "orders-0"})
    assert len(found.events) == 1
