"""Spark's errors, which run over hundreds of lines, as one line with a place in the pipeline."""

from __future__ import annotations

import re
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from tidelog.pipeline.declaration.parts import PipelineError, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.pipeline.declaration.parts import View

_SQL_LINE = re.compile(r"\(?line (\d+),? pos(?:ition)? (\d+)\)?")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_QUERY = re.compile(r"^Query \[id = [^\]]*\] terminated with exception: ")
_JOB = re.compile(r"^Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): ", re.DOTALL)
_JAVA_CLASS = re.compile(r"^(?:[a-z_][\w$]*\.)+([A-Z]\w*(?:Exception|Error)): ")
_TAIL = re.compile(r"\s*(SQLSTATE: \w+|;?\s*line \d+ pos \d+;?).*$", re.DOTALL)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")
_FRAME = re.compile(r'^ +File "([^"]+)", line (\d+)')
_TRACEBACK = "Traceback (most recent call last)"
_OTHERS_CODE = re.compile(
    r"/(?:site|dist)-packages/|/pyspark/|/tidelog/(?:spark|client|config|pipeline)/|^<"
)
# Between an exception and the one that was raised because of it.
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")


def spark_exception() -> type[Exception]:
    """What Spark raises; pyspark is imported when it is asked for."""
    from pyspark.errors import PySparkException

    return PySparkException


def spark_failures() -> tuple[type[Exception], ...]:
    """What a call to Spark may end with: its own errors, and those of the way to its JVM. Nothing
    while Spark has not been asked for."""
    if "pyspark" not in sys.modules:
        return ()
    from py4j.protocol import Py4JError

    return spark_exception(), Py4JError, ConnectionError


def summary(error: BaseException) -> str:
    """What a person needs of it: the end of a worker's traceback, else the first sentence."""
    text = str(error)
    return raised_by_worker(text) or _first_sentence(text)


def _first_sentence(text: str) -> str:
    """Of what Spark says, below what it wraps around it: the query, the job, the Java class."""
    text = _TAIL.sub("", text.strip())
    for wrapping in (_CONDITION, _QUERY, _CONDITION, _JOB):
        text = wrapping.sub("", text)
    text = _JAVA_CLASS.sub(r"\1: ", text)
    lines = [line.strip() for line in _CONDITION.sub("", text).strip().splitlines()]
    return " ".join(line for line in lines[: _stack_at(lines)] if line)


def _stack_at(lines: list[str]) -> int:
    """Where a Java stack, a driver's stack or a plan begins."""
    ends = ("at ", "Driver stacktrace", "===", "'", "Caused by:", "JVM stacktrace")
    return next((n for n, line in enumerate(lines) if n and line.startswith(ends)), len(lines))


def raised_by_worker(text: str) -> str | None:
    """`ValueError: ... (views.py, line 3)` where Python code of a worker or of the driver's source
    has failed; the line is that of the innermost frame outside of installed packages."""
    lines = iter(text.splitlines())
    raised = None
    for line in lines:
        if _TRACEBACK in line:
            raised = _end_of_traceback(lines)
            # Where a batch is written, a worker's failure is the message of the driver's own.
            while raised is not None and _TRACEBACK in raised:
                raised = _end_of_traceback(lines)
        elif raised is not None and line.strip() and not line.startswith(_CHAINED):
            break
    return raised


def _end_of_traceback(lines: Iterator[str]) -> str | None:
    place = ""
    for line in lines:
        if frame := _FRAME.match(line):
            if not _OTHERS_CODE.search(frame[1]):
                place = f" ({PurePath(frame[1]).name}, line {frame[2]})"
        elif line and not line[0].isspace():
            name, colon, message = _SQLSTATE.sub("", line).partition(":")
            return f"{name.rpartition('.')[2]}{colon}{message}".strip() + place
    return None


def sql_error(view: View, error: BaseException, known: Sequence[str]) -> PipelineError:
    text = str(error)
    found = _SQL_LINE.search(text)
    line = view.sql_place.line + (int(found[1]) - 1 if found else 0)
    message = f"[view.{view.name}] sql: {summary(error)}"
    if "TABLE_OR_VIEW_NOT_FOUND" in text:
        name = re.search(r"The table or view (\S+)", text)
        message = f"[view.{view.name}] sql: there is no {name[1] if name else 'such table'}"
        message += f"; a view sees the sources and the views above it: {', '.join(known)}"
    return PipelineError(Problem(Place(view.sql_place.file, line), message))
