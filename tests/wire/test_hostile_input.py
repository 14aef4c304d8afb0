"""Bytes that no client sends: the decoder answers with DecodeError alone, and little memory."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from tests.support.messages import Case, RandomChoices, build, distinct_layouts, struct_class
from tidelog.protocol import DecodeError
from tidelog.protocol.generation.schema import Field
from tidelog.protocol.messages.create_topics import CreateTopicsRequest
from tidelog.protocol.messages.fetch import FetchRequest, FetchTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.primitives import OBJECT_BUDGET

LAYOUTS = distinct_layouts()
CUTS_PER_LAYOUT = 160
MUTATIONS_PER_LAYOUT = 60
MEMORY_PER_INPUT_BYTE_MAX = 64
MEMORY_BASE_BYTES = 64 * 1024


def decode_or_refuse(case: Case, data: bytes | bytearray) -> Any:
    """The message, or None for a DecodeError; any other exception passes."""
    try:
        return case.message_class.decode(memoryview(data), 0, case.version)
    except DecodeError:
        return None


@pytest.mark.parametrize("case", LAYOUTS, ids=lambda case: case.name)
def test_truncation_at_every_byte_is_refused(case: Case) -> None:
    encoded = build(case, RandomChoices((case.name, "cut"))).encode(case.version)
    cuts = range(len(encoded))
    if len(cuts) > CUTS_PER_LAYOUT:
        cuts = sorted(random.Random(case.name).sample(cuts, CUTS_PER_LAYOUT))  # type: ignore[assignment]
    for cut in cuts:
        assert decode_or_refuse(case, encoded[:cut]) is None, cut


@pytest.mark.parametrize("case", LAYOUTS, ids=lambda case: case.name)
def test_mutated_bytes_raise_nothing_but_decode_error(case: Case) -> None:
    source = random.Random(case.name)
    encoded = build(case, RandomChoices((case.name, "mutate"))).encode(case.version)
    for _ in range(MUTATIONS_PER_LAYOUT if encoded else 0):
        mutated = bytearray(encoded)
        for _ in range(source.randint(1, 4)):
            mutated[source.randrange(len(mutated))] = source.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        decode_or_refuse(case, mutated)


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_floods_of_one_byte_take_little_memory(byte: int) -> None:
    flood = bytes([byte]) * 4096
    allowed = MEMORY_PER_INPUT_BYTE_MAX * len(flood) + MEMORY_BASE_BYTES
    for case in LAYOUTS:
        case.message_class  # noqa: B018 - imports the module before memory is measured
    tracemalloc.start()
    try:
        for case in LAYOUTS:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            decode_or_refuse(case, flood)
            assert tracemalloc.get_traced_memory()[1] - before < allowed, case.name
    finally:
        tracemalloc.stop()


def arrays_of_structs(case: Case) -> list[Field]:
    return [
        row for row in case.layout.present(case.schema.fields) if row.is_array and row.is_struct
    ]


def test_arrays_of_smallest_structs_take_a_small_multiple_of_their_bytes() -> None:
    for case in LAYOUTS:
        for row in arrays_of_structs(case):
            items = [struct_class(case, row)() for _ in range(500)]
            message = case.message_class(**{row.name: items})
            for field in case.layout.present(row.fields):
                if field.type == "records":
                    for item in items:
                        setattr(item, field.name, b"")
            encoded = message.encode(case.version)
            del message, items
            tracemalloc.start()
            try:
                decoded = decode_or_refuse(case, encoded)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert decoded is not None
            allowed = MEMORY_PER_INPUT_BYTE_MAX * len(encoded) + MEMORY_BASE_BYTES
            assert peak < allowed, (case.name, row.name, peak / len(encoded))


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (FetchRequest(topics=[FetchTopic()] * (OBJECT_BUDGET + 1)), 12),
        (MetadataRequest(topics=[MetadataRequestTopic(name="")] * (OBJECT_BUDGET + 1)), 9),
    ],
    ids=["written in place", "by calls"],
)
def test_more_structs_than_the_budget_are_refused_before_one_is_made(
    message: FetchRequest | MetadataRequest, version: int
) -> None:
    encoded = memoryview(message.encode(version))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="exceeds"):
            type(message).decode(encoded, 0, version)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BASE_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("message_class", "version", "data"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f"),
        (CreateTopicsRequest, 0, b"\x7f\xff\xff\xff\x00\x00"),
        (ProduceRequest, 3, b"\xff\xff\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff"),
        (FetchRequest, 12, b"\x00" * 25 + b"\xff\xff\xff\xff\x0f"),
        (OffsetFetchRequest, 0, b"\x00\x01g\x7f\xff\xff\xff"),
    ],
)
def test_a_count_beyond_the_bytes_is_refused(message_class: Any, version: int, data: bytes) -> None:
    with pytest.raises(DecodeError):
        message_class.decode(memoryview(data), 0, version)


@pytest.mark.parametrize(
    ("message_class", "version", "data", "why"),
    [
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "null"),
        (MetadataRequest, 1, b"\x00\x00\x00\x01\xff\xff\x00", "null"),
        (MetadataRequest, 9, b"\x02\x00\x00\x00\x00\x00\x00", "null"),
        (MetadataRequest, 1, b"\x00\x00\x00\x01\x00\x02\xc3\x28", "codec can't decode"),
        (MetadataRequest, 9, b"\x02\x03\xc3\x28\x00\x00\x00\x00\x00", "codec can't decode"),
        (MetadataRequest, 9, b"\x02\x03\xed\xa0\x80\x00\x00\x00", "codec can't decode"),
        (MetadataRequest, 9, b"\x80\x80\x80\x80\x80\x01", "varint"),
        (MetadataRequest, 9, b"\x80\x80\x80\x80\x10", "varint"),
        (MetadataRequest, 9, b"\x02\x82\x80\x02" + bytes(32769) + bytes(5), "a string of 32769"),
        (ProduceRequest, 9, b"\x00\x00\x01\x00\x00\x00\x00\x00\x00", "null"),
        (
            ProduceRequest,
            9,
            b"\x00\x00\x01\x00\x00\x00\x00\x01\xff\xff\xff\xff\x0f",
            "out of bounds",
        ),
        (ProduceRequest, 9, b"\x00\x00\x01\x00\x00\x00\x00\x01\x01\x07\x7fa", "ends early"),
        (ProduceRequest, 3, b"\xff\xff\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff", "null"),
        (FetchRequest, 12, b"\x00" * 25 + b"\x01\x01\x01\x01\x00\x04\x03abx", "size it announces"),
    ],
)
def test_malformed_values_are_refused(
    message_class: Any, version: int, data: bytes, why: str
) -> None:
    with pytest.raises(DecodeError, match=why):
        message_class.decode(memoryview(data), 0, version)


def test_a_negative_length_of_a_nullable_string_is_null() -> None:
    data = b"\xff\xf0" + b"\x00\x01" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x00"
    assert ProduceRequest.decode(memoryview(data), 0, 3).transactional_id is None


def test_a_varint_with_needless_bytes_is_read() -> None:
    data = b"\x81\x80\x00" + b"\x00\x00\x00\x00"
    assert MetadataRequest.decode(memoryview(data), 0, 9).topics == []


def test_a_version_beyond_the_table_is_refused() -> None:
    with pytest.raises(DecodeError, match="no version 99"):
        MetadataRequest.decode(memoryview(b""), 0, 99)
