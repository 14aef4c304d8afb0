"""murmur2 partitions of keys: Java's values, and the compiled kernel equal to its twin."""

from __future__ import annotations

from importlib import import_module
from itertools import accumulate
from struct import pack, unpack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.record import _pure

compiled: Any
try:
    compiled = import_module("tidelog.record._kernel")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")
modules = [_pure] if compiled is None else [_pure, compiled]

# org.apache.kafka.common.utils.Utils.murmur2 of each, as Java's signed int.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def column(keys: list[bytes | None]) -> tuple[bytes, bytes, bytes]:
    """Offsets, validity and data of an Arrow binary column."""
    ends = accumulate((len(key or b"") for key in keys), initial=0)
    bits = sum(1 << row for row, key in enumerate(keys) if key is not None)
    return (
        pack(f"{len(keys) + 1}i", *ends),
        bits.to_bytes((len(keys) + 7) // 8, "little"),
        b"".join(key or b"" for key in keys),
    )


@pytest.mark.parametrize("module", modules)
@pytest.mark.parametrize("partitions_count", [1, 3, 10, 1000])
def test_partitions_are_those_of_javas_producer(module: Any, partitions_count: int) -> None:
    keys: list[bytes | None] = list(JAVA_HASHES)
    found = module.key_partitions(*column(keys), 0, len(keys), partitions_count)
    expected = [(value & 0x7FFFFFFF) % partitions_count for value in JAVA_HASHES.values()]
    assert list(unpack(f"{len(keys)}i", found)) == expected


@pytest.mark.parametrize("module", modules)
def test_a_null_key_has_no_partition_and_an_empty_one_has(module: Any) -> None:
    found = unpack("3i", module.key_partitions(*column([None, b"", None]), 0, 3, 7))
    assert found[0] == found[2] == -1
    assert 0 <= found[1] < 7


@pytest.mark.parametrize("module", modules)
def test_validity_may_be_left_out(module: Any) -> None:
    offsets, _, data = column([b"a", b"b"])
    with_validity = module.key_partitions(*column([b"a", b"b"]), 0, 2, 5)
    assert module.key_partitions(offsets, None, data, 0, 2, 5) == with_validity


@pytest.mark.parametrize("module", modules)
@pytest.mark.parametrize(
    "arguments",
    [(0, 3, 5), (-1, 1, 5), (0, 2, 0), (0, 2, -1), (2, 1, 5), (0, -1, 5), (1 << 40, 1, 5)],
)
def test_rows_outside_the_column_are_refused(module: Any, arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        module.key_partitions(*column([b"a", b"b"]), *arguments)


@needs_compiled
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=40), max_size=20),
    st.data(),
    st.integers(1, 1 << 31) | st.integers(1, 50),
)
def test_the_compiled_kernel_equals_its_twin(
    keys: list[bytes | None], data: st.DataObject, partitions_count: int
) -> None:
    columns = [bytearray(buffer) for buffer in column(keys)]
    if data.draw(st.booleans()):
        victim = columns[data.draw(st.integers(0, 2))]
        if victim:
            victim[data.draw(st.integers(0, len(victim) - 1))] = data.draw(st.integers(0, 255))
        del victim[len(victim) - data.draw(st.integers(0, min(3, len(victim)))) :]
    start = data.draw(st.integers(0, len(keys)))
    count = data.draw(st.integers(0, len(keys) - start))
    arguments = (*columns, start, count, partitions_count)
    assert outcome(compiled, *arguments) == outcome(_pure, *arguments)


def outcome(module: Any, *arguments: Any) -> Any:
    try:
        return module.key_partitions(*arguments)
    except ValueError:
        return ValueError
