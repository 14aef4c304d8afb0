"""Confluent's frame: ids and message indexes, there and back, and bytes that have none."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tidelog.spark.codecs.broken_rows import BrokenRows  # noqa: E402
from tidelog.spark.codecs.framing import (  # noqa: E402
    encoded_indexes,
    framed,
    message_indexes,
    records_behind,
    schema_ids,
)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=64).map(tuple), st.binary())
def test_message_indexes_go_there_and_back(indexes: tuple[int, ...], after: bytes) -> None:
    encoded = encoded_indexes(indexes)
    assert message_indexes(encoded + after, 0) == (indexes, len(encoded))


def test_the_first_message_has_two_ways_of_writing() -> None:
    assert encoded_indexes((0,)) == b"\0"
    assert message_indexes(b"\x02\0", 0) == ((0,), 2)


@given(st.binary(max_size=12))
def test_any_bytes_have_indexes_or_are_refused(data: bytes) -> None:
    try:
        indexes, position = message_indexes(data, 0)
    except ValueError:
        return
    assert 0 < len(indexes) <= 64
    assert position <= len(data)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=9)), min_size=1))
def test_ids_of_four_bytes_go_there_and_back(records: list[tuple[int, bytes]]) -> None:
    arrays = [framed(pa.array([record], pa.binary()), number) for number, record in records]
    values = pa.concat_arrays([pa.array([b"before"]), *arrays])[1:]
    broken = BrokenRows(len(values))
    rows, ids = schema_ids(values, np.arange(len(values)), broken)
    assert broken.is_empty
    assert (rows.tolist(), ids.tolist()) == (
        list(range(len(records))),
        [number for number, _ in records],
    )


def test_rows_are_grouped_by_the_message_that_they_hold() -> None:
    frame = b"\0\0\0\0\7"
    values = pa.array(
        [frame + b"\0a", frame + b"\x02\x02b", frame, frame + b"\0", frame + b"\x02\0c"]
    )
    broken = BrokenRows(len(values))
    found = {
        (indexes, tuple(rows.tolist())): records
        for indexes, rows, records in records_behind(values, np.arange(len(values)), broken)
    }
    assert found == {
        ((0,), (0, 3)): [b"a", b""],
        ((1,), (1,)): [b"b"],
        ((0,), (4,)): [b"c"],
    }
    assert broken.reasons().to_pylist() == [
        None,
        None,
        "has no frame of Protobuf: it has no message indexes",
        None,
        None,
    ]
