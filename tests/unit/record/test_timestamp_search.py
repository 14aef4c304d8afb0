from __future__ import annotations

import pytest

from tests.support.batches import NOW, simple_batch, with_payload_bytes
from tidelog.record.batch import Codec
from tidelog.record.errors import InvalidRecords
from tidelog.record.legacy import LegacyRecord, message_set_of
from tidelog.record.timestamp_search import first_at_or_after


@pytest.mark.parametrize("codec", list(Codec))
def test_the_record_is_found_inside_its_batch(codec: Codec) -> None:
    batch = simple_batch(5, base_offset=100, codec=codec)
    assert first_at_or_after(batch, NOW + 3) == (NOW + 3, 103)
    assert first_at_or_after(batch, NOW - 1) == (NOW, 100)
    assert first_at_or_after(batch, NOW, starting_offset=104) == (NOW + 4, 104)
    assert first_at_or_after(batch, NOW + 5) is None


def test_with_append_time_all_records_have_the_batchs_timestamp() -> None:
    batch = simple_batch(5, base_offset=100, append_time_ms=NOW + 50)
    assert first_at_or_after(batch, NOW + 50) == (NOW + 50, 100)
    assert first_at_or_after(batch, NOW + 50, starting_offset=102) == (NOW + 50, 102)
    assert first_at_or_after(batch, NOW + 51) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_messages_are_searched_too(codec: Codec) -> None:
    records = [LegacyRecord(9, NOW + 4, None, b"v")]
    data = message_set_of(records, 1, codec=codec)
    assert first_at_or_after(data, NOW) == (NOW + 4, 9)
    assert first_at_or_after(data, NOW + 5) is None
    assert first_at_or_after(data, NOW, starting_offset=10) is None


def test_malformed_records_are_invalid() -> None:
    with pytest.raises(InvalidRecords):
        first_at_or_after(with_payload_bytes(simple_batch(1), b"\x02"), 0)
