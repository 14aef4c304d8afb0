"""Record batches for tests: plain ones, ones with a damaged field, and hypothesis strategies."""

from __future__ import annotations

from struct import pack_into
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tidelog.record.batch import Codec, stamp_crc
from tidelog.record.builder import batch_of

if TYPE_CHECKING:
    from tidelog.record.kernel import Record

NOW = 1_700_000_000_000


def records_of(count: int, *, value_bytes: int = 10, timestamp: int = NOW) -> list[Record]:
    """`count` records with keys k0, k1, ... one millisecond apart."""
    return [(b"k%d" % index, b"v" * value_bytes, (), timestamp + index) for index in range(count)]


def simple_batch(count: int = 3, **fields: Any) -> bytearray:
    return batch_of(records_of(count), **fields)


_PLACES = {
    "base_offset": (">q", 0),
    "batch_length": (">i", 8),
    "partition_leader_epoch": (">i", 12),
    "magic": (">b", 16),
    "crc": (">I", 17),
    "attributes": (">h", 21),
    "last_offset_delta": (">i", 23),
    "base_timestamp": (">q", 27),
    "max_timestamp": (">q", 35),
    "producer_id": (">q", 43),
    "producer_epoch": (">h", 51),
    "base_sequence": (">i", 53),
    "records_count": (">i", 57),
}


def with_fields(batch: bytearray, **fields: int) -> bytearray:
    """A copy with header fields overwritten and the checksum made right, unless `crc` is given."""
    changed = bytearray(batch)
    for name, value in fields.items():
        form, position = _PLACES[name]
        pack_into(form, changed, position, value)
    if "crc" not in fields:
        stamp_crc(changed)
    return changed


def with_payload_bytes(batch: bytearray, payload: bytes) -> bytearray:
    """The same header over other record bytes, length and checksum made right."""
    changed = batch[:61] + payload
    pack_into(">i", changed, 8, len(changed) - 12)
    stamp_crc(changed)
    return changed


timestamps = st.integers(-1, (1 << 62) - 1)
fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), fields), max_size=3)
record_lists = st.lists(st.tuples(fields, fields, headers, timestamps), max_size=20)
codecs = st.sampled_from(list(Codec))


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> bytearray:
    producer_id = draw(st.sampled_from([-1, 0, 5, 1 << 40]))
    return batch_of(
        draw(record_lists),
        base_offset=base_offset,
        codec=draw(codecs),
        leader_epoch=draw(st.integers(-1, 5)),
        producer_id=producer_id,
        producer_epoch=draw(st.integers(-1, 3)),
        base_sequence=draw(st.integers(-1, 1 << 30)),
        is_transactional=draw(st.booleans()),
        is_control=draw(st.booleans()),
        append_time_ms=draw(st.none() | timestamps),
    )


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytearray]) -> bytes:
    """Bytes that began as a batch: some overwritten, some cut; half get a right checksum again."""
    data = draw(whole)
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if len(data) > 61 and draw(st.booleans()):
        stamp_crc(data)
    return bytes(data[: draw(st.integers(max(0, len(data) - 20), len(data)))])
