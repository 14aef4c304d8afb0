"""Rows in any order to one batch: the compiled kernel and its twin agree, on bad columns too."""

from __future__ import annotations

from importlib import import_module
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import record_lists, records_of
from tidelog.record import _pure, kernel

compiled: Any
try:
    compiled = import_module("tidelog.record._kernel")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")
modules = [_pure] if compiled is None else [_pure, compiled]


def columns_of(records: Any) -> Any:
    payload, base_timestamp, _ = _pure.encode_records(records, 0)
    return _pure.records_to_columns([(payload, len(records), 0, base_timestamp, None)])


def order_of(*rows: int) -> bytes:
    return pack(f"{len(rows)}q", *rows)


def outcome(module: Any, *arguments: Any) -> Any:
    try:
        return module.encode_rows(*arguments)
    except ValueError:
        return ValueError


@pytest.mark.parametrize("module", modules)
def test_rows_are_those_asked_for_numbered_anew(module: Any) -> None:
    records = records_of(5)
    picked = [records[row] for row in (3, 0, 0, 4)]
    found = module.encode_rows(columns_of(records), order_of(2, 3, 0, 0, 4, 1), 1, 5, 7)
    assert found == module.encode_records(picked, 7)


@pytest.mark.parametrize("module", modules)
@pytest.mark.parametrize(
    ("order", "start", "stop"),
    [((5,), 0, 1), ((-1,), 0, 1), ((0,), 0, 2), ((0, 1), 2, 1), ((0,), -1, 1), ((1 << 40,), 0, 1)],
)
def test_rows_outside_the_columns_are_refused(
    module: Any, order: tuple[int, ...], start: int, stop: int
) -> None:
    with pytest.raises(ValueError, match="rows outside"):
        module.encode_rows(columns_of(records_of(5)), order_of(*order), start, stop, 0)


@pytest.mark.parametrize("module", modules)
def test_no_rows_make_no_bytes(module: Any) -> None:
    assert module.encode_rows(columns_of(records_of(5)), b"", 0, 0, 3) == (bytearray(3), -1, -1)


@needs_compiled
@settings(max_examples=300, deadline=None)
@given(record_lists, st.data())
def test_the_compiled_kernel_equals_its_twin(records: Any, data: st.DataObject) -> None:
    columns = list(columns_of(records))
    if data.draw(st.booleans()):
        victim = columns[data.draw(st.integers(1, 14))]
        if victim:
            victim[data.draw(st.integers(0, len(victim) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            del victim[len(victim) // 8 * 4 :]
    rows = data.draw(st.lists(st.integers(-1, len(records)), max_size=30))
    stop = data.draw(st.integers(0, len(rows)))
    start = data.draw(st.integers(0, stop))
    arguments = (kernel.RecordColumns(*columns), order_of(*rows), start, stop, 2)
    assert outcome(compiled, *arguments) == outcome(_pure, *arguments)
