"""Every layout decodes to what was encoded."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.messages import Case, RandomChoices, all_cases, build, distinct_layouts
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

SAMPLES_PER_CASE = 3
FLEXIBLE = [case for case in distinct_layouts() if case.layout.flexible]


class DrawnChoices:
    """Choices that hypothesis draws and shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def number(self) -> float:
        return self._draw(st.floats(allow_nan=False))

    def text(self) -> str:
        return self._draw(st.text(max_size=200))

    def blob(self, length: int | None = None) -> bytes:
        sizes = (0, 300) if length is None else (length, length)
        return self._draw(st.binary(min_size=sizes[0], max_size=sizes[1]))

    def yes(self) -> bool:
        return self._draw(st.booleans())

    def length(self) -> int:
        return self._draw(st.integers(0, 3))


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_decode_undoes_encode(case: Case) -> None:
    for sample in range(SAMPLES_PER_CASE):
        message = build(case, RandomChoices((case.name, sample)))
        encoded = message.encode(case.version)
        framed = memoryview(b"head" + encoded + b"bytes after the body")
        assert type(message).decode(framed, 4, case.version) == message


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(distinct_layouts()), st.data())
def test_decode_undoes_encode_for_drawn_values(case: Case, data: st.DataObject) -> None:
    message = build(case, DrawnChoices(data))
    encoded = message.encode(case.version)
    assert type(message).decode(memoryview(encoded), 0, case.version) == message


@pytest.mark.parametrize("case", FLEXIBLE, ids=lambda case: case.name)
def test_unknown_tags_are_skipped(case: Case) -> None:
    message = build(case, RandomChoices((case.name, 0)))
    for row in case.layout.tagged(case.schema.fields):
        setattr(message, row.name, getattr(type(message)(), row.name))
    encoded = message.encode(case.version)
    assert encoded.pop() == 0
    encoded += b"\x02" + b"\xe7\x07" + b"\x03abc" + b"\xe8\x07" + b"\x00"
    assert type(message).decode(memoryview(encoded), 0, case.version) == message


def test_records_are_a_writable_view_into_the_frame() -> None:
    records = PartitionProduceData(records=b"batch")
    topics = [TopicProduceData(name="t", partition_data=[records])]
    frame = ProduceRequest(topic_data=topics).encode(9)
    decoded = ProduceRequest.decode(memoryview(frame), 0, 9)
    decoded.topic_data[0].partition_data[0].records[0] = ord("c")
    assert b"catch" in frame
