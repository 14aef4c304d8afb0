"""Spark's errors, which run over hundreds of lines, as one line with a place in the pipeline."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.pipeline.declaration import PipelineError, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.pipeline.declaration import View

_SQL_LINE = re.compile(r"\(?line (\d+),? pos(?:ition)? (\d+)\)?")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_TAIL = re.compile(r"\s*(SQLSTATE: \w+|;?\s*line \d+ pos \d+;?).*$", re.DOTALL)
_RAISED = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w+): (.+)$")


def spark_exception() -> type[Exception]:
    """What Spark raises; pyspark is imported when it is asked for."""
    from pyspark.errors import PySparkException

    return PySparkException


def summary(error: BaseException) -> str:
    """What a person needs of it: the last line of a worker's traceback, else the first sentence."""
    text = str(error)
    return raised_by_worker(text) or _CONDITION.sub("", _TAIL.sub("", text.strip())).strip()


def raised_by_worker(text: str) -> str | None:
    """`ValueError: ...` where Python code of a worker or of the driver's source has failed."""
    inside = False
    for line in text.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and (found := _RAISED.match(line)):
            return f"{found[1]}: {found[2]}"
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
