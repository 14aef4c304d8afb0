"""Frames come out of the answer buffer as they went in, however the bytes were cut."""

from __future__ import annotations

import struct
from random import Random

import pytest

from tidelog.network.answer_buffer import IDLE_ANSWERS, START_BYTES, AnswerBuffer
from tidelog.network.framing import InvalidFrame


def put(buffer: AnswerBuffer, data: bytes, piece_max: int = 1 << 30) -> list[bytes]:
    """Receives the data in pieces; the frames that came out."""
    frames = []
    while data:
        space = buffer.space()
        assert len(space) > 0
        count = min(len(space), len(data), piece_max)
        space[:count] = data[:count]
        buffer.received(count)
        data = data[count:]
        while (frame := buffer.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_frames_come_out_whole_whatever_the_pieces() -> None:
    random = Random(7)
    bodies = [random.randbytes(random.choice([0, 1, 5, 300, 70_000])) for _ in range(60)]
    stream = b"".join(map(framed, bodies))
    for piece_max in (1_000, 4_096, 65_536, 1 << 30):
        assert put(AnswerBuffer(1 << 20), stream, piece_max) == bodies


def test_a_large_frame_is_received_into_one_buffer_of_its_size() -> None:
    buffer = AnswerBuffer(1 << 24)
    body = bytes(5_000_000)
    assert put(buffer, framed(body)) == [body]
    assert 5_000_004 <= buffer.capacity < 5_100_000


def test_the_room_of_a_large_frame_is_kept_for_the_next_one() -> None:
    buffer = AnswerBuffer(1 << 24)
    put(buffer, framed(bytes(3_000_000)))
    capacity = buffer.capacity
    put(buffer, framed(bytes(2_000_000)))
    assert buffer.capacity == capacity


def test_room_that_is_not_needed_any_more_is_given_back() -> None:
    buffer = AnswerBuffer(1 << 24)
    put(buffer, framed(bytes(3_000_000)))
    for _ in range(IDLE_ANSWERS + 2):
        put(buffer, framed(b"small"))
    assert buffer.capacity == START_BYTES


@pytest.mark.parametrize("size", [-1, 1_025])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    buffer = AnswerBuffer(1_024)
    with pytest.raises(InvalidFrame):
        put(buffer, struct.pack(">i", size) + b"xx")
