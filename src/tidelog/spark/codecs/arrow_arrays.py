"""Arrow arrays by their buffers: the bytes of one, and nested ones of exactly a given type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

_PADDING: Final = 16  # so that what gathers a few bytes at any position needs no check before


def buffer_of(values: Any) -> tuple[Any, Any]:
    """The bytes of a binary array, padded, and its offsets in them."""
    assert types.is_binary(values.type), values.type
    _, offsets, data = values.buffers()
    every = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    first, last = int(every[0]), int(every[-1])
    used = np.frombuffer(data, np.uint8, last) if data is not None else np.zeros(0, np.uint8)
    padded = np.concatenate([used[first:last], np.zeros(_PADDING, np.uint8)])
    return padded, every.astype(np.int64) - first


def struct_array(arrays: Sequence[Any], kind: Any, count: int, is_null: Any = None) -> Any:
    if len(arrays):
        mask = None if is_null is None else pa.array(is_null)
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
    return pa.array([{}] * count, kind)


def list_array(values: Sequence[Any], offsets: Any, kind: Any) -> Any:
    bounds = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, bounds], children=list(values))


def map_array(keys: Any, values: Any, offsets: Any, kind: Any) -> Any:
    entry = pa.struct([pa.field("key", kind.key_type, False), kind.item_field])
    if kind.num_fields == 1:
        entry = kind.field(0).type
    entries = pa.StructArray.from_arrays([keys, values], fields=list(entry))
    return list_array([entries], offsets, kind)
