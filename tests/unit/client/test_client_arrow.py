"""Record batches as Spark's kafka source would give them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tidelog.client.columns.arrow import (
    SCHEMA,
    SCHEMA_WITH_HEADERS,
    BatchAssembler,
    Run,
    constant_array,
    wanted_stretches,
)
from tidelog.record import kernel
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.record.kernel import Record

TP = TopicPartition("t", 3)
END = 1 << 60
RECORDS: list[Record] = [
    (b"k", b"v", [("h", b"1"), ("h", None)], 1_700_000_000_123),
    (None, b"", [], -1),
    (b"", None, [("", b"")], 5),
]


def columns_of(records: list[Record], base_offset: int = 0) -> Any:
    payload, base_timestamp, _ = kernel.encode_records(records, 0)
    return kernel.records_to_columns([(payload, len(records), base_offset, base_timestamp, None)])


def assembled(records: list[Record], run: Run, rows_max: int = 1000, **options: Any) -> pa.Table:
    assembler = BatchAssembler(with_headers=options.get("with_headers", True))
    batches = assembler.assemble(columns_of(records), [run], rows_max)
    return pa.Table.from_batches(list(batches), assembler.schema)


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert [(field.name, str(field.type)) for field in SCHEMA_WITH_HEADERS] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<element: struct<key: string, value: binary>>"),
    ]
    assert SCHEMA_WITH_HEADERS.names[:-1] == SCHEMA.names
    assert all(field.nullable for field in SCHEMA_WITH_HEADERS)


def test_rows_come_with_nulls_and_headers_kept_apart() -> None:
    table = assembled(RECORDS, Run(TP, 0, 3, 0, END))
    table.validate(full=True)
    rows = table.to_pylist()
    assert [row["key"] for row in rows] == [b"k", None, b""]
    assert [row["value"] for row in rows] == [b"v", b"", None]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("t", 3, 0)}
    micros = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert micros == [1_700_000_000_123_000, -1000, 5000]
    assert [row["headers"] for row in rows] == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        None,
        [{"key": "", "value": b""}],
    ]


def test_headers_are_left_out_unless_asked_for() -> None:
    table = assembled(RECORDS, Run(TP, 0, 3, 0, END), with_headers=False)
    assert table.schema == SCHEMA


def test_records_without_any_header_have_null_headers() -> None:
    table = assembled([(b"k", b"v", [], 1)] * 2, Run(TP, 0, 2, 0, END))
    assert table.column("headers").to_pylist() == [None, None]


def test_a_header_key_that_is_no_utf8_is_replaced_as_java_does() -> None:
    table = assembled([(b"k", b"v", [(b"a\xff", b"1")], 1)], Run(TP, 0, 1, 0, END))
    table.validate(full=True)
    assert table.column("headers").to_pylist() == [[{"key": "a\ufffd", "value": b"1"}]]


def test_rows_outside_the_range_are_cut_off() -> None:
    records: list[Record] = [(None, b"%d" % row, [], 0) for row in range(10)]
    table = assembled(records, Run(TP, 0, 10, 3, 7))
    assert table.column("offset").to_pylist() == [3, 4, 5, 6]
    assert table.column("value").to_pylist() == [b"3", b"4", b"5", b"6"]


def test_batches_have_at_most_the_rows_asked_for() -> None:
    assembler = BatchAssembler(with_headers=False)
    records: list[Record] = [(None, b"x", [], 0)] * 10
    batches = list(assembler.assemble(columns_of(records), [Run(TP, 0, 10, 0, END)], 4))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]


def test_several_partitions_and_timestamp_types_share_a_batch() -> None:
    other = TopicPartition("u", 1)
    parts = []
    for base in (5, 0):
        payload, timestamp, _ = kernel.encode_records([(None, b"x", [], 0)] * 3, 0)
        parts.append((payload, 3, base, timestamp, None))
    assembler = BatchAssembler(with_headers=False)
    runs = [Run(TP, 0, 3, 6, END), Run(other, 1, 3, 0, 2)]
    (batch,) = assembler.assemble(kernel.records_to_columns(parts), runs, 100)
    assert batch.schema == SCHEMA
    assert [tuple(row.values())[2:5] for row in batch.to_pylist()] == [
        ("t", 3, 6),
        ("t", 3, 7),
        ("u", 1, 0),
        ("u", 1, 1),
    ]
    assert batch.column("timestampType").to_pylist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("runs", "stretches"),
    [
        ([(4, 0, 99)], [(0, 4)]),
        ([(4, 1, 3)], [(1, 3)]),
        ([(4, 9, 99)], []),
        ([(2, 0, 99), (2, 0, 99)], [(0, 4)]),
        ([(2, 1, 99), (2, 0, 3)], [(1, 3)]),
        ([(2, 0, 1), (2, 3, 99)], [(0, 1), (3, 4)]),
    ],
)
def test_wanted_rows_are_as_few_stretches_as_possible(
    runs: list[tuple[int, int, int]], stretches: list[tuple[int, int]]
) -> None:
    offsets = memoryview(columns_of([(None, None, [], 0)] * 4)[1]).cast("q")
    made = [Run(TP, 0, *run) for run in runs]
    assert wanted_stretches(offsets, made) == stretches


@pytest.mark.parametrize("value", ["orders", "", "größe"])
def test_a_constant_text_column_repeats_the_text(value: str) -> None:
    assert constant_array(pa.string(), value, 3).to_pylist() == [value] * 3


def test_a_constant_number_column_repeats_the_number() -> None:
    assert constant_array(pa.int32(), -1, 3).to_pylist() == [-1] * 3


def test_making_record_batches_does_not_import_pandas() -> None:
    """Spark starts Python workers by the dozen; pandas would cost each a third of a second."""
    program = (
        "import sys\n"
        "from tests.unit.client.test_client_arrow import *\n"
        "assert assembled(RECORDS, Run(TP, 0, 3, 0, END)).num_rows == 3\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_batch_that_is_kept_stays_as_it_is() -> None:
    assembler = BatchAssembler(with_headers=True)
    kept: list[pa.RecordBatch] = []
    for number in range(5):
        payload, base_timestamp, _ = kernel.encode_records([(b"k", b"%d" % number, [], 0)], 0)
        columns = assembler.decode([(payload, 1, number, base_timestamp, None)])
        kept += assembler.assemble(columns, [Run(TP, 0, 1, 0, END)], 10)
    table = pa.Table.from_batches(kept)
    assert table.column("value").to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    assert table.column("offset").to_pylist() == [0, 1, 2, 3, 4]
