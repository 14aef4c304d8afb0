"""From Arrow columns of every shape to what the kernel encodes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidelog.client.columns.arrow import HEADERS
from tidelog.client.columns.produce_columns import KernelColumns, by_partition, rows_by_topic
from tidelog.client.errors import InvalidRow
from tidelog.record.columns import StoredRecord, columns_of

NOW = 1_700_000_000_000


def written(batch: pa.RecordBatch, topic: str | None = "t") -> dict[str, list[StoredRecord]]:
    """What a reader would see of the rows, by topic."""
    found = {}
    for name, rows in rows_by_topic(batch, topic):
        encoded, base_timestamp, _ = KernelColumns(rows, NOW).encode(0, rows.rows_count, 0)
        part = (encoded, rows.rows_count, 0, base_timestamp, None)
        found[name] = list(columns_of([part]))
    return found


def values(batch: pa.RecordBatch) -> list[bytes | None]:
    return [record.value for record in written(batch)["t"]]


@pytest.mark.parametrize(
    "type",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
    ],
)
def test_values_may_be_binary_or_text_of_any_width(type: Any) -> None:
    column = pa.array(["a", None, ""], pa.string()).cast(type)
    assert values(pa.record_batch({"value": column})) == [b"a", None, b""]


def test_dictionaries_and_all_null_columns_are_taken() -> None:
    column = pa.array(["a", "b", None, "a"]).dictionary_encode()
    assert values(pa.record_batch({"value": column})) == [b"a", b"b", None, b"a"]
    assert values(pa.record_batch({"value": pa.nulls(2)})) == [None, None]


def test_slices_are_taken_from_their_own_first_row() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array([b"%d" % row for row in range(20)]),
            "value": pa.array([None if row % 3 else b"v%d" % row for row in range(20)]),
        }
    ).slice(5, 9)
    rows = written(batch)["t"]
    assert [row.key for row in rows] == [b"%d" % row for row in range(5, 14)]
    assert [row.value for row in rows] == [
        None if row % 3 else b"v%d" % row for row in range(5, 14)
    ]


def test_headers_of_every_shape_are_kept() -> None:
    type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers: list[Any] = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [],
        [{"key": "", "value": b""}],
        [{"key": "z", "value": b"9"}],
    ]
    batch = pa.record_batch({"value": pa.array([b"v"] * 5), "headers": pa.array(headers, type)})
    expected = [[("a", b"1"), ("a", None)], [], [], [("", b"")], [("z", b"9")]]
    assert [row.headers for row in written(batch)["t"]] == expected
    assert [row.headers for row in written(batch.slice(3))["t"]] == expected[3:]


def test_what_lies_under_a_null_list_is_not_written() -> None:
    structs = pa.array(
        [{"key": "x", "value": b"1"}] * 3, pa.struct([("key", pa.string()), ("value", pa.binary())])
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), structs, mask=pa.array([False, True, False])
    )
    batch = pa.record_batch({"value": pa.array([b"v"] * 3), "headers": lists})
    assert [len(row.headers) for row in written(batch)["t"]] == [1, 0, 1]


def test_a_header_without_a_key_is_refused() -> None:
    type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {"value": pa.array([b"v"]), "headers": pa.array([[{"key": None, "value": b""}]], type)}
    )
    with pytest.raises(InvalidRow, match="null key"):
        written(batch)


def test_timestamps_are_now_unless_given() -> None:
    batch = pa.record_batch({"value": pa.array([b"v"] * 2)})
    assert [row.timestamp for row in written(batch)["t"]] == [NOW, NOW]
    given = pa.array([5_000_999, None], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"value": pa.array([b"v"] * 2), "timestamp": given})
    assert [row.timestamp for row in written(batch)["t"]] == [5000, NOW]


def test_rows_are_split_by_topic_in_order() -> None:
    batch = pa.record_batch(
        {"topic": pa.array(["a", "b", "a"]), "value": pa.array([b"1", b"2", b"3"])}
    )
    found = written(batch, None)
    assert {name: [row.value for row in rows] for name, rows in found.items()} == {
        "a": [b"1", b"3"],
        "b": [b"2"],
    }


def test_a_topic_given_to_the_producer_comes_before_the_column() -> None:
    batch = pa.record_batch({"topic": pa.array(["a", None]), "value": pa.array([b"1", b"2"])})
    assert list(written(batch, "mine")) == ["mine"]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"key": pa.array([b"a"])}, "no column named value"),
        ({"value": pa.array([b"a"])}, "no column named topic"),
        ({"value": pa.array([b"a"]), "topic": pa.array([None], pa.string())}, "null topic"),
        ({"value": pa.array([1]), "topic": pa.array(["t"])}, "column value of type int64"),
        (
            {"value": pa.array([b"a"]), "topic": pa.array(["t"]), "partition": pa.array(["x"])},
            "column partition",
        ),
        (
            {"value": pa.array([b"a"]), "topic": pa.array(["t"]), "headers": pa.array([1])},
            "column headers",
        ),
    ],
)
def test_rows_that_cannot_be_written_are_refused_by_column(
    columns: dict[str, pa.Array], named: str
) -> None:
    with pytest.raises(InvalidRow, match=named):
        written(pa.record_batch(columns), None)


def test_rows_of_a_partition_come_together_and_stay_in_order() -> None:
    order, runs = by_partition(pa.array([2, 0, 2, 1, 0, 2, 0], pa.int32()))
    assert runs == [(0, 0, 3), (1, 3, 4), (2, 4, 7)]
    assert order is not None
    assert order.to_pylist() == [1, 4, 6, 3, 0, 2, 5]


def test_rows_that_are_together_already_are_left_alone() -> None:
    order, runs = by_partition(pa.array([2, 2, 0, 1], pa.int32()))
    assert order is None
    assert runs == [(2, 0, 2), (0, 2, 3), (1, 3, 4)]


@pytest.mark.parametrize("with_headers", [False, True])
def test_rows_are_encoded_in_the_order_given(with_headers: bool) -> None:
    columns = {
        "key": pa.array([None, b"b", b"c", b"dddd"]),
        "value": pa.array([b"0" * 50, None, b"2", b""]),
    }
    if with_headers:
        lists = [[{"key": str(row), "value": b""}] for row in range(4)]
        columns["headers"] = pa.array(lists, HEADERS)
    ((_, rows),) = rows_by_topic(pa.record_batch(columns), "t")
    order = pa.array([3, 0, 2, 1], pa.uint64())
    ordered = KernelColumns(rows, NOW, order)
    moved = KernelColumns(rows.taken(order), NOW)
    for start, stop in ((0, 4), (1, 3), (2, 2)):
        assert ordered.encode(start, stop, 5) == moved.encode(start, stop, 5)
        assert ordered.bytes_between(start, stop) == moved.bytes_between(start, stop)


@pytest.mark.parametrize("limit_bytes", [1, 30, 100, 1000, 1 << 20])
def test_batches_keep_to_their_size_unless_one_row_is_larger(limit_bytes: int) -> None:
    sizes = [5, 0, 300, 20, 20, 2000, 1, 1, 1]
    batch = pa.record_batch({"value": pa.array([b"x" * size for size in sizes])})
    ((_, rows),) = rows_by_topic(batch, "t")
    columns = KernelColumns(rows, NOW)
    pieces = list(columns.cut(0, len(sizes), limit_bytes))
    assert [row for start, stop in pieces for row in range(start, stop)] == list(range(len(sizes)))
    for start, stop in pieces:
        encoded = columns.encode(start, stop, 0)[0]
        assert len(encoded) <= columns.bytes_between(start, stop)
        assert stop - start == 1 or len(encoded) <= limit_bytes
