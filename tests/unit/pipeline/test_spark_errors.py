from __future__ import annotations

from pathlib import Path

from tidelog.pipeline.declaration.parts import Place, View
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
    assert summary(ValueError(text)) == "UnknownTopic: topic t: it is gone (x.py, line 3)"


def test_of_exceptions_that_led_to_others_the_last_is_told() -> None:
    """As Spark tells what failed in a commit: on the line of its own words."""
    text = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source "
        "perform commit: Traceback (most recent call last):\n"
        '  File "/opt/src/tidelog/spark/writer.py", line 312, in commit_batch\n    run(\n'
        "tidelog.client.errors.NotAuthorized: topic p: not authorized\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/src/tidelog/spark/writer.py", line 305, in commit\n    commit(\n'
        "tidelog.spark.sink_ledger.ProgressTopicUnusable: topic p cannot be made\n\n"
        "\tat org.apache.spark.X\nCaused by: Traceback (most recent call last):\n  more\nE: no\n"
    )
    assert summary(ValueError(text)) == "ProgressTopicUnusable: topic p cannot be made"


def test_of_an_exception_whose_message_is_a_traceback_the_inner_one_is_told() -> None:
    """As a batch of a shared query fails: Python in the driver, Spark, and Python again."""
    text = (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error: Traceback (most recent call last):\n"
        '  File "/opt/src/tidelog/pipeline/queries/topic_writer.py", line 204, in save_batch\n'
        "    rows.write\n"
        "pyspark.errors.exceptions.captured.AnalysisException: [PYTHON_DATA_SOURCE_ERROR] Failed "
        "to initialize Python data source writer: Traceback (most recent call last):\n"
        '  File "/opt/src/tidelog/spark/source.py", line 59, in writer\n    return\n'
        "tidelog.spark.options.InvalidOption: option kafka.acs: is unknown\n SQLSTATE: 38000\n"
    )
    assert summary(ValueError(text)) == "InvalidOption: option kafka.acs: is unknown"


def test_of_an_expectation_in_a_shared_query_only_the_sentence_is_told() -> None:
    text = (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error: Traceback (most recent call last):\n"
        '  File "/opt/src/tidelog/pipeline/queries/topic_writer.py", line 204, in save_batch\n'
        "    rows.write\n"
        "pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] tidelog "
        "expectation small: a row of v is not a < 3 SQLSTATE: P0001\n"
    )
    assert summary(ValueError(text)) == (
        "SparkRuntimeException: [USER_RAISED_EXCEPTION] tidelog expectation small: a row of v is "
        "not a < 3"
    )


def test_an_exception_without_a_message_is_told_with_the_line_of_the_users_file() -> None:
    text = (
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times\n"
        "Traceback (most recent call last):\n"
        '  File "/shop/views.py", line 7, in shout\n    assert page\n'
        '  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 100, in f\n'
        "AssertionError\n\n\tat org.apache.spark.api.python.X\n"
    )
    assert summary(ValueError(text)) == "AssertionError (views.py, line 7)"


def test_of_a_failed_job_the_cause_is_told_and_no_stack() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to "
        "stage failure: Task 1 in stage 20.0 failed 1 times, most recent failure: Lost task 1.0 in "
        "stage 20.0 (TID 39) (127.0.0.1 executor driver): java.io.IOException: No space left\n"
        "\tat java.base/java.io.X\n\tat y\nDriver stacktrace: SQLSTATE: XXKST\n=== Streaming"
    )
    assert summary(ValueError(text)) == "IOException: No space left"


def test_a_text_of_one_line_stays_as_it_is() -> None:
    assert summary(ValueError("no such topic: orders")) == "no such topic: orders"
