from __future__ import annotations

from pathlib import Path

from tidelog.pipeline.declaration import Place, View
from tidelog.pipeline.spark_errors import sql_error, summary

VIEW = View(
    name="v",
    line=10,
    sql="select\n nope\nfrom t",
    sql_place=Place(Path("p.toml"), 12),
    python_file=None,
    function="",
    inputs=(),
    watermark=None,
)


def test_an_error_in_sql_is_found_at_its_line_of_the_file() -> None:
    told = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. Did you "
        "mean one of the following? [`id`]. SQLSTATE: 42703; line 2 pos 1;\n'Project ['nope]\n"
    )
    assert str(sql_error(VIEW, ValueError(told), ["t"])) == (
        "p.toml:13: [view.v] sql: A column with name `nope` cannot be resolved. Did you mean one "
        "of the following? [`id`]."
    )


def test_an_unknown_table_is_told_with_those_there_are() -> None:
    told = (
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `orders` cannot be found. Verify the spelling."
        " SQLSTATE: 42P01; line 1 pos 14;"
    )
    text = str(sql_error(VIEW, ValueError(told), ["a", "b"]))
    assert text.endswith(
        "there is no `orders`; a view sees the sources and the views above it: a, b"
    )


def test_of_a_workers_traceback_the_last_line_is_told() -> None:
    text = (
        "[STREAM_FAILED] Query failed\nTraceback (most recent call last):\n"
        '  File "x.py", line 3, in read\n    raise ...\n'
        "tidelog.client.errors.UnknownTopic: topic t: it is gone\n\n\tat org.apache.spark.X\n"
    )
    assert summary(ValueError(text)) == "UnknownTopic: topic t: it is gone"
