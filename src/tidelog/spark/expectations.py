"""What holds for every row, and what becomes of a row that breaks it; for any PySpark program.

    drop          leaves the row out; a streaming query counts it in its progress
    dead-letter   gives a decoded row a reason, so that `dead_letters` finds it
    fail          stops the query

A row meets an expectation when its SQL is true: neither false nor null.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.decoding import DEAD_LETTER, DROP, REASON, TABLE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

    Observe = Callable[[DataFrame, str, Column], DataFrame]

FAIL: Final = "fail"
ON_FAIL: Final = (DROP, DEAD_LETTER, FAIL)
# In the message of a query that an expectation has stopped.
EXPECTATION_FAILED: Final = "tidelog expectation"
_METRIC: Final = "tidelog_expect."


def observed_by_name(rows: DataFrame, name: str, metric: Column) -> DataFrame:
    """Counted in the progress of a streaming query."""
    return rows.observe(_METRIC + name, metric)


def expect(
    rows: DataFrame,
    name: str,
    sql: str,
    on_fail: str = DROP,
    *,
    of: str = "the query",
    observe: Observe = observed_by_name,
) -> DataFrame:
    """The rows that meet `sql`. With `dead-letter` the rows must be those of `decode`, all of them
    stay, and `sql` is about the columns that `good_rows` would give. The error of `fail` calls the
    rows `of`. `observe` is how dropped rows are counted."""
    if on_fail not in ON_FAIL:
        raise ValueError(f'on_fail: "{on_fail}" is not known; there is {", ".join(ON_FAIL)}')
    if on_fail == DEAD_LETTER:
        return _with_reason(rows, name, sql)
    from pyspark.sql import functions as F

    is_met = F.coalesce(F.expr(_whole(sql)).cast("boolean"), F.lit(False))
    if on_fail == FAIL:
        told = f"{EXPECTATION_FAILED} {name}: a row of {of} is not {_one_line(sql)}"
        stop = F.raise_error(F.lit(told)).cast("boolean")
        return rows.where(F.when(is_met, F.lit(True)).otherwise(stop))
    return observe(rows, name, F.count_if(~is_met).alias("rows")).where(is_met)


def _with_reason(rows: DataFrame, name: str, sql: str) -> DataFrame:
    """The columns of the table stand beside the whole row while the question is asked."""
    from pyspark.sql import functions as F

    told = F.lit(f"expectation {name}: not {_one_line(sql)}")
    asked = rows.selectExpr("struct(*) as __row", *TABLE_COLUMNS)
    missed = F.coalesce(~F.expr(_whole(sql)), F.lit(True))
    reason = F.coalesce(F.col(f"__row.{REASON}"), F.when(missed, told))
    asked = asked.select("__row.*", reason.alias("__asked"))
    return asked.drop(REASON).withColumnRenamed("__asked", REASON)


def dropped_in_last_batch(query: Any) -> dict[str, int]:
    """Rows that each expectation has dropped in the last batch of a StreamingQuery; empty before
    its first report."""
    progress = query.lastProgress
    return {} if progress is None else dropped_rows(json.loads(progress.json))


def dropped_rows(progress: Mapping[str, Any]) -> dict[str, int]:
    """By expectation, from a progress report."""
    found = {}
    for name, metric in progress.get("observedMetrics", {}).items():
        if name.startswith(_METRIC):
            # Spark Connect reports values without their names.
            count = metric.get("rows", *metric.get("values", [0])[:1])
            found[name.removeprefix(_METRIC)] = int(count or 0)
    return found


def _whole(sql: str) -> str:
    """As one operand; the line ends first, because it may end in a comment."""
    return f"({sql}\n)"


def _one_line(sql: str) -> str:
    return " ".join(sql.split())
