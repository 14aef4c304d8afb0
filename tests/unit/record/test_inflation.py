from __future__ import annotations

import os

import pytest

from tidelog.record.batch import Codec
from tidelog.record.compression import compress
from tidelog.record.errors import RecordsTooLarge, UndecodableRecords
from tidelog.record.inflation import BATCH_BYTES_SURE, InflationBudget

MIB = 1 << 20
ZEROS = compress(Codec.ZSTD, bytes(4 * MIB))


def test_what_inflates_is_taken_off() -> None:
    budget = InflationBudget(10 * MIB)
    assert len(budget.decompress(Codec.ZSTD, ZEROS)) == 4 * MIB
    assert budget.bytes_left == 6 * MIB


def test_beyond_what_is_left_it_is_too_large() -> None:
    budget = InflationBudget(6 * MIB)
    budget.decompress(Codec.ZSTD, ZEROS)
    with pytest.raises(RecordsTooLarge):
        budget.decompress(Codec.ZSTD, ZEROS)
    assert budget.bytes_left == 0


def test_a_small_batch_is_sure_to_pass() -> None:
    budget = InflationBudget(0)
    small = compress(Codec.ZSTD, bytes(BATCH_BYTES_SURE))
    for _ in range(3):
        assert len(budget.decompress(Codec.ZSTD, small)) == BATCH_BYTES_SURE
    assert budget.bytes_left == 0


def test_what_does_not_decompress_costs_all_it_could_have_taken() -> None:
    budget = InflationBudget(6 * MIB)
    broken = compress(Codec.GZIP, bytes(4 * MIB))[:-1]
    with pytest.raises(UndecodableRecords):
        budget.decompress(Codec.GZIP, broken)
    assert budget.bytes_left == 0


@pytest.mark.parametrize(
    ("request_bytes", "bytes_left"),
    [(0, 16 * MIB), (32 * 1024, 18 * MIB), (MIB, 80 * MIB), (50 * MIB, 100 * MIB)],
)
def test_a_request_has_a_budget_by_its_size(request_bytes: int, bytes_left: int) -> None:
    assert InflationBudget.for_request(request_bytes).bytes_left == bytes_left


def test_the_format_of_magic_0_is_known() -> None:
    content = os.urandom(100)
    old = compress(Codec.LZ4, content, magic=0)
    assert InflationBudget().decompress(Codec.LZ4, old, 0) == content
