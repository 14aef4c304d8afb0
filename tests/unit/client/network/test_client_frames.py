"""Frames out of a stream that is cut anywhere."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.network.frames import SMALL_BYTES, FrameMemory, FrameReader, InvalidFrame

LIMIT = 64 << 20


def feed(reader: FrameReader, stream: bytes, cuts: list[int]) -> list[bytes]:
    """The frames that come out when the stream arrives in pieces of these sizes."""
    found: list[bytes] = []
    position, turn = 0, 0
    while position < len(stream):
        buffer = reader.buffer()
        size = min(cuts[turn % len(cuts)], len(buffer), len(stream) - position)
        buffer[:size] = stream[position : position + size]
        found += [bytes(frame) for frame in reader.received(size)]
        position += size
        turn += 1
    return found


@given(
    sizes=st.lists(st.sampled_from([0, 3, 4, 100, 60_000, 65_532, 65_536, 200_000]), max_size=8),
    cuts=st.lists(st.sampled_from([1_000, 4_099, 65_536, 1 << 20]), min_size=1, max_size=5),
)
def test_frames_come_out_whole_however_they_arrive(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert feed(FrameReader(LIMIT, FrameMemory()), stream, cuts) == frames


def test_a_frame_may_arrive_byte_by_byte() -> None:
    frames = [b"abcd", b"x" * 300]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert feed(FrameReader(LIMIT, FrameMemory()), stream, [1]) == frames


@pytest.mark.parametrize("length", [-1, -(1 << 31), LIMIT + 1, (1 << 31) - 1])
def test_a_length_that_no_answer_has_is_refused(length: int) -> None:
    reader = FrameReader(LIMIT, FrameMemory())
    with pytest.raises(InvalidFrame, match=str(length)):
        feed(reader, struct.pack(">i", length), [4])


def test_a_large_frame_is_received_into_its_own_memory() -> None:
    reader = FrameReader(LIMIT, FrameMemory())
    feed(reader, struct.pack(">i", 10 << 20) + b"ab", [6])
    assert reader.is_within_frame
    assert len(reader.buffer()) == (10 << 20) - 2


def test_memory_is_lent_again_only_when_nobody_looks_at_it() -> None:
    memory = FrameMemory()
    first = memory.take(2 << 20)
    part = first[100:200]
    owner = first.obj
    second = memory.take(1 << 20)
    assert second.obj is not owner
    del first, second
    third = memory.take(2 << 20)
    assert third.obj is not owner  # `part` still looks at the first
    free = id(owner)
    del part, owner
    fourth = memory.take(2 << 20)
    assert id(fourth.obj) == free
    fifth = memory.take(2 << 20)
    assert fifth.obj is not fourth.obj


def test_views_stay_valid_while_more_frames_arrive() -> None:
    reader = FrameReader(LIMIT, FrameMemory())
    views: list[memoryview] = []
    for number in range(10):
        stream = struct.pack(">i", 100_000) + bytes([number]) * 100_000
        position = 0
        while position < len(stream):
            buffer = reader.buffer()
            size = min(len(buffer), len(stream) - position)
            buffer[:size] = stream[position : position + size]
            views += reader.received(size)
            position += size
    assert [view[0] for view in views] == list(range(10))
    assert SMALL_BYTES < 100_000
