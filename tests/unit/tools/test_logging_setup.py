from __future__ import annotations

import json
import logging
import sys

import pytest

from tidelog.tools.cli.logging_setup import (
    JsonFormatter,
    LogfmtFormatter,
    logfmt_value,
    set_up_logging,
)


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("tidelog.log", logging.WARNING, "x.py", 1, message, None, None)
    made.created, made.msecs = 1_700_000_000.0625, 62.5
    made.__dict__.update(extra)
    return made


def test_logfmt_has_time_level_logger_message_and_extra_fields() -> None:
    assert LogfmtFormatter().format(record("log loaded", topic="t", offset=7)) == (
        "time=2023-11-14T22:13:20.062Z level=warning logger=tidelog.log "
        'msg="log loaded" topic=t offset=7'
    )


def test_json_has_the_same_fields() -> None:
    assert json.loads(
        JsonFormatter().format(record("log loaded", offset=7, error=OSError("x")))
    ) == {
        "time": "2023-11-14T22:13:20.062Z",
        "level": "warning",
        "logger": "tidelog.log",
        "msg": "log loaded",
        "offset": 7,
        "error": "x",
    }


@pytest.mark.parametrize("formatter", [LogfmtFormatter(), JsonFormatter()])
def test_a_traceback_stays_on_the_line(formatter: logging.Formatter) -> None:
    made = record("failed")
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = formatter.format(made)
    assert "\n" not in line
    assert "ValueError: why" in line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("a b", '"a b"'),
        ("a=b", '"a=b"'),
        ('say "x"', '"say \\"x\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("two\nlines\t\x1b", '"two\\nlines\\t\\u001b"'),
    ],
)
def test_logfmt_quotes_what_would_break_the_line(value: str, shown: str) -> None:
    assert logfmt_value(value) == shown


def test_logs_go_to_standard_error_from_the_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("logfmt", "warning")
    logging.getLogger("tidelog.x").info("not shown")
    logging.getLogger("tidelog.x").warning("shown")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "msg=shown" in captured.err
