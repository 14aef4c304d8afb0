"""Records decoded by the functions that any PySpark program may call, without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MORE = "has more behind its JSON object"
RECORDS: dict[bytes, int | str] = {
    b'{"a": 1}': 1,
    b'{"a": 2}\n': 2,
    b'\r\n\t {\n "a": 3\n}\r\n': 3,
    b'{"a": 4, "b": "}{ ]"}': 4,
    b'{"a": 5, "c": NaN}': 5,
    b"{'a': 6}": 6,
    b'{"a": 7}\n{"a": 8}': MORE,
    b'{"a": 9}{"a": 10}': MORE,
    b'{"a": 11}, {"a": 12}': MORE,
    b'{"a": 13}}': MORE,
    b'{"a": 14}]}': MORE,
    b'{"a": 15} }{': "is no JSON object",
    b'{"a": 16} // }': MORE,
    b'{"a": 17,}': "is no valid JSON",
}


def records(spark: SparkSession, *values: bytes) -> DataFrame:
    """As the connector gives them."""
    rows = spark.createDataFrame([(bytearray(value),) for value in values], "value binary")
    return rows.selectExpr(
        "cast(null as binary) as key",
        "value",
        "'orders' as topic",
        "0 as partition",
        "0L as offset",
        "timestamp '2026-01-05 08:00:00' as timestamp",
        "0 as timestampType",
        "cast(null as array<struct<key: string, value: binary>>) as headers",
    )


def judged(spark: SparkSession, values: list[bytes], **options: str) -> list[int | str]:
    """What is in column `a`, or why the record is broken."""
    from tidelog.spark.decoding import decode
    from tidelog.spark.record_format import RecordFormat

    format = RecordFormat("json", "a bigint, b string, c double", options)
    rows = decode(records(spark, *values), format).selectExpr("__parsed.a", "__reason").collect()
    return [row[1] or row[0] for row in rows]


def test_a_json_record_is_one_object_and_white_space(spark: SparkSession) -> None:
    """Spark reads the first object and drops what follows it, so other objects would be lost."""
    found = judged(spark, list(RECORDS))
    assert dict(zip(RECORDS, found, strict=True)) == RECORDS


def test_what_the_format_options_allow_is_nothing_more(spark: SparkSession) -> None:
    values = [b'{"a": 16} // }', b'{"a": 1} // }\n{"a": 2}']
    assert judged(spark, values, allowComments="true") == [16, MORE]


def test_a_column_may_not_have_the_name_of_one_of_the_record(spark: SparkSession) -> None:
    """The table would have two of that name."""
    from tidelog.spark.codecs.errors import SchemaError
    from tidelog.spark.decoding import decode
    from tidelog.spark.record_format import RecordFormat

    with pytest.raises(SchemaError, match="column _Key: the record has a column of that name"):
        decode(records(spark, b"{}"), RecordFormat("json", "a bigint, _Key string"))


@pytest.mark.parametrize("on_fail", ["drop", "dead-letter", "fail"])
def test_the_sql_of_an_expectation_may_end_in_a_comment(spark: SparkSession, on_fail: str) -> None:
    from tidelog.spark.decoding import decode, good_rows
    from tidelog.spark.expectations import expect
    from tidelog.spark.record_format import RecordFormat

    rows = decode(records(spark, b'{"a": 1}'), RecordFormat("json", "a bigint"))
    sql = "a > 0 -- what is free is no sale"
    if on_fail == "dead-letter":
        rows = good_rows(expect(rows, "paid", sql, on_fail))
    else:
        rows = expect(good_rows(rows), "paid", sql, on_fail)
    assert [row.a for row in rows.collect()] == [1]
