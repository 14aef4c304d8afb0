from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.network import frame, length
from tidelog.network.framing import (
    ANSWER_START_BYTES,
    IDLE_ANSWERS,
    LARGE_FRAME_BYTES,
    SHARED_BYTES,
    AnswerBuffer,
    FrameReader,
    InvalidFrame,
    ReceiveBuffers,
)

MIB = 1024 * 1024


def new_reader(size_max: int = 100 * MIB) -> FrameReader:
    return FrameReader(ReceiveBuffers(), size_max)


def put(reader: FrameReader, data: bytes) -> int:
    """One receive of as much as there is room for."""
    space = reader.space()
    count = min(len(space), len(data))
    space[:count] = data[:count]
    reader.received(count)
    return count


def take_all(reader: FrameReader) -> list[bytes]:
    frames = []
    while (found := reader.next_frame()) is not None:
        frames.append(bytes(found))
    reader.leave_shared_buffer()
    return frames


def feed(reader: FrameReader, data: bytes, chunk: int = 1 << 30) -> list[bytes]:
    frames = []
    while data:
        count = put(reader, data[:chunk])
        data = data[count:]
        frames += take_all(reader)
    return frames


def test_all_frames_of_one_receive_are_cut() -> None:
    reader = new_reader()

    assert feed(reader, frame(b"a") + frame(b"") + frame(b"ccc")) == [b"a", b"", b"ccc"]
    assert reader.held_bytes == 0


@pytest.mark.parametrize("cut", range(1, 19))
def test_frames_split_at_any_byte_come_out_whole(cut: int) -> None:
    stream = frame(b"first") + frame(b"second")
    reader = new_reader()

    assert feed(reader, stream[:cut]) + feed(reader, stream[cut:]) == [b"first", b"second"]
    assert reader.held_bytes == 0


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_a_trickle_comes_out_whole(chunk: int) -> None:
    bodies = [bytes([n]) * n for n in range(20)]

    assert feed(new_reader(), b"".join(map(frame, bodies)), chunk) == bodies


@pytest.mark.parametrize(
    "size", [LARGE_FRAME_BYTES - 1, LARGE_FRAME_BYTES + 1, SHARED_BYTES, MIB, 9 * MIB + 5]
)
@pytest.mark.parametrize("chunk", [10_000, 100_000, 1 << 30])
def test_large_frames_come_out_whole_between_small_ones(size: int, chunk: int) -> None:
    large = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    reader = new_reader()

    frames = feed(reader, frame(b"before") + frame(large) + frame(b"after"), chunk)

    assert frames == [b"before", large, b"after"]
    assert reader.held_bytes == 0


def test_frames_are_writable_views_of_the_receive_buffer() -> None:
    reader = new_reader()
    put(reader, frame(b"abc"))

    found = reader.next_frame()

    assert found is not None
    found[0:1] = b"x"
    assert bytes(found) == b"xbc"


def test_frames_that_wait_outlive_the_shared_buffer() -> None:
    buffers = ReceiveBuffers()
    reader, other = FrameReader(buffers, MIB), FrameReader(buffers, MIB)
    put(reader, frame(b"one") + frame(b"two"))
    assert bytes(reader.next_frame() or b"") == b"one"
    reader.leave_shared_buffer()

    assert feed(other, frame(b"zzzzzzzzzzzzzzzzzzzz")) == [b"z" * 20]
    assert take_all(reader) == [b"two"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_outside_the_limits_is_refused_before_the_body_arrives(size: int) -> None:
    reader = new_reader(size_max=1000)
    put(reader, length(size))

    assert reader.has_frame()
    with pytest.raises(InvalidFrame):
        reader.next_frame()


def test_has_frame_tells_complete_frames_from_partial_ones() -> None:
    reader = new_reader()

    put(reader, length(3) + b"ab")
    assert not reader.has_frame()
    put(reader, b"c")
    assert reader.has_frame()


def test_announced_bytes_take_no_memory_until_they_arrive() -> None:
    reader = new_reader()

    assert feed(reader, length(100 * MIB) + b"x" * 100) == []
    assert reader.held_bytes == 104


def test_a_used_mapping_serves_the_next_large_frame_and_goes_when_idle() -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(MIB)
    first[0:1] = b"f"
    buffers.give_back(first)

    assert bytes(buffers.take(MIB)[0:1]) == b"f"
    buffers.give_back(first)
    buffers.trim()
    buffers.trim()
    assert bytes(buffers.take(MIB)[0:1]) == b"\0"


def test_a_mapping_grows_although_an_earlier_frame_is_still_viewed() -> None:
    buffers = ReceiveBuffers()
    reader = FrameReader(buffers, 100 * MIB)
    body = b"q" * (MIB // 2)
    data = frame(body)
    while not reader.has_frame():
        data = data[put(reader, data) :]
    kept = reader.next_frame()
    reader.leave_shared_buffer()
    large = b"r" * (5 * MIB)

    assert feed(reader, frame(large)) == [large]
    assert kept is not None


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 50, 30_000, 140_000, 700_000]), max_size=8),
    chunks=st.lists(st.sampled_from([1, 3, 100, 40_000, 250_000, 10**7]), min_size=1, max_size=8),
    frames_per_turn=st.integers(1, 5),
)
def test_any_frames_in_any_chunks_come_out_in_order(
    sizes: list[int], chunks: list[int], frames_per_turn: int
) -> None:
    """Also when frames are left waiting now and then, as behind an unanswered request."""
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    stream = memoryview(b"".join(map(frame, bodies)))
    reader = new_reader()
    found: list[bytes] = []
    receive = 0
    while len(stream) or reader.has_frame():
        for _ in range(frames_per_turn):
            view = reader.next_frame() if reader.end else None
            if view is not None:
                found.append(bytes(view))
        reader.leave_shared_buffer()
        if not reader.has_frame():
            # A single byte at a time only to begin with, or a large frame would take for ever.
            chunk = chunks[receive % len(chunks)] if receive < 50 else 10**7
            stream = stream[put(reader, bytes(stream[:chunk])) :]
            receive += 1
            reader.leave_shared_buffer()

    assert found == bodies
    assert reader.next_frame() is None


def put_answers(buffer: AnswerBuffer, data: bytes, piece_max: int = 1 << 30) -> list[bytes]:
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


def test_frames_come_out_whole_whatever_the_pieces() -> None:
    random = Random(7)
    bodies = [random.randbytes(random.choice([0, 1, 5, 300, 70_000])) for _ in range(60)]
    stream = b"".join(map(frame, bodies))
    for piece_max in (1_000, 4_096, 65_536, 1 << 30):
        assert put_answers(AnswerBuffer(1 << 20), stream, piece_max) == bodies


def test_a_large_frame_is_received_into_one_buffer_of_its_size() -> None:
    buffer = AnswerBuffer(1 << 24)
    body = bytes(5_000_000)
    assert put_answers(buffer, frame(body)) == [body]
    assert 5_000_004 <= buffer.capacity < 5_100_000


def test_the_room_of_a_large_frame_is_kept_for_the_next_one() -> None:
    buffer = AnswerBuffer(1 << 24)
    put_answers(buffer, frame(bytes(3_000_000)))
    capacity = buffer.capacity
    put_answers(buffer, frame(bytes(2_000_000)))
    assert buffer.capacity == capacity


def test_room_that_is_not_needed_any_more_is_given_back() -> None:
    buffer = AnswerBuffer(1 << 24)
    put_answers(buffer, frame(bytes(3_000_000)))
    for _ in range(IDLE_ANSWERS + 2):
        put_answers(buffer, frame(b"small"))
    assert buffer.capacity == ANSWER_START_BYTES


@pytest.mark.parametrize("size", [-1, 1_025])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    buffer = AnswerBuffer(1_024)
    with pytest.raises(InvalidFrame):
        put_answers(buffer, length(size) + b"xx")
