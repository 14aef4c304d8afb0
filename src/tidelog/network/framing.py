"""Cuts a byte stream into frames, without touching a socket.

    frame = size int32 big-endian | size bytes

`ReceiveBuffers` is one processor's receive memory, `FrameReader` one connection's place in it.
Bytes are received into the processor's shared buffer and frames are views of it, so a connection
that has no partial frame holds no memory at all. What is left when a connection is done with the
shared buffer moves to memory of its own:

| what is left                            | kept in                | next receive goes to      |
|-----------------------------------------|------------------------|---------------------------|
| nothing                                 | -                      | shared buffer             |
| frames that wait for an earlier answer  | a bytearray            | (nothing is received now) |
| a partial frame <= LARGE_FRAME_BYTES    | a bytearray            | shared buffer, behind a   |
| or with less than LARGE_START_BYTES     |                        | copy of what is left      |
| a larger partial frame                  | a private mapping that | behind it, up to the      |
|                                         | grows by GROWTH        | frame's end               |

Mappings are not zeroed by hand and take memory page by page, so an announced size costs nothing
until its bytes arrive; used ones are kept as spares, because their pages are there already.

`AnswerBuffer` is where the answers of another broker arrive: one buffer, which an answer fills
without being copied. A broker of the same cluster is trusted with its sizes, so room for a whole
frame is taken at once. A frame is a view of the buffer and is gone when the next one is asked for.
The room of a large answer is kept for the next one, and given back after IDLE_ANSWERS that needed
little of it.
"""

from __future__ import annotations

import mmap
from struct import Struct
from typing import Final

from tidelog.network.settings import KIB, MIB

SHARED_BYTES: Final = 256 * KIB
LARGE_FRAME_BYTES: Final = SHARED_BYTES // 2
LARGE_START_BYTES: Final = 32 * KIB
MAPPING_BYTES_MIN: Final = 1 * MIB
SPARE_BYTES_MAX: Final = 16 * MIB
GROWTH: Final = 4

ANSWER_START_BYTES: Final = 64 * KIB
IDLE_ANSWERS: Final = 256

LENGTH_BYTES: Final = 4
_TLS_HELLO: Final = 0x1603  # the first two bytes of a handshake
_unpack_length: Final = Struct(">i").unpack_from
_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_NOTHING: Final = memoryview(bytearray())


class InvalidFrame(Exception):
    """The announced size is negative or larger than the broker accepts."""

    def __init__(self, size: int, size_max: int) -> None:
        hint = ""
        if size >> 16 == _TLS_HELLO:
            hint = "; a TLS handshake begins so, but this listener does not speak TLS"
        super().__init__(f"frame of {size} bytes announced, 0 to {size_max} accepted{hint}")


class ReceiveBuffers:
    """Receive memory of one processor: the shared buffer and spare mappings."""

    __slots__ = ("_spare_bytes", "_spare_used", "_spares", "shared")

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self._spares: list[memoryview] = []
        self._spare_bytes = 0
        self._spare_used = False  # since the last trim

    def take(self, size: int) -> memoryview:
        """A mapping of at least `size` bytes."""
        for index in range(len(self._spares) - 1, -1, -1):
            if len(self._spares[index]) >= size:
                spare = self._spares.pop(index)
                self._spare_bytes -= len(spare)
                self._spare_used = True
                return spare
        capacity = max(MAPPING_BYTES_MIN, 1 << (size - 1).bit_length())
        return memoryview(mmap.mmap(-1, capacity, flags=_PRIVATE))

    def give_back(self, mapping: memoryview) -> None:
        if self._spare_bytes + len(mapping) <= SPARE_BYTES_MAX:
            self._spares.append(mapping)
            self._spare_bytes += len(mapping)

    def trim(self) -> None:
        """Called about once a second: one spare goes if none was used since the last call."""
        if self._spares and not self._spare_used:
            self._spare_bytes -= len(self._spares.pop(0))
        self._spare_used = False


class FrameReader:
    """The bytes of one connection that have arrived and are not handled yet: view[position:end].

    One receive is: `space()`, recv_into it, `received(n)`, `next_frame()` until None,
    `leave_shared_buffer()`. From the first to the last of them the processor's shared buffer is in
    use, and nobody else may receive.
    """

    __slots__ = ("_buffers", "_mapped", "_view", "end", "position", "size_max")

    def __init__(self, buffers: ReceiveBuffers, size_max: int) -> None:
        self._buffers = buffers
        self.size_max = size_max
        self._view = _NOTHING
        self._mapped = False  # view is a mapping that holds exactly one partial frame, from 0
        self.position = 0
        self.end = 0

    @property
    def held_bytes(self) -> int:
        """After `leave_shared_buffer()`: the memory this connection keeps."""
        return self.end - self.position

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if not self.end:
            self._view = shared = self._buffers.shared
            return shared
        if self._is_large():
            if not self._mapped:
                self._move_to_mapping()
            return self._mapping_space()
        shared = self._buffers.shared
        size = self.end - self.position
        shared[:size] = self._view[self.position : self.end]
        self._view = shared
        self.position = 0
        self.end = size
        return shared[size:]

    def received(self, count: int) -> None:
        self.end += count

    def next_frame(self) -> memoryview | None:
        """The next complete frame without its length, a view that lives until the next receive."""
        body = self.position + LENGTH_BYTES
        if body > self.end:
            return None
        size: int = _unpack_length(self._view, self.position)[0]
        if not 0 <= size <= self.size_max:
            raise InvalidFrame(size, self.size_max)
        frame_end = body + size
        if frame_end > self.end:
            return None
        self.position = frame_end
        return self._view[body:frame_end]

    def has_frame(self) -> bool:
        """Whether `next_frame()` has something to say: a frame or an invalid length."""
        have = self.end - self.position
        if have < LENGTH_BYTES:
            return False
        size: int = _unpack_length(self._view, self.position)[0]
        return not 0 <= size <= self.size_max or size + LENGTH_BYTES <= have

    def next_starts_with(self, start: bytes) -> bool:
        """Whether `next_frame()` gives a frame that begins so, or none."""
        if not self.has_frame():
            return True
        body = self.position + LENGTH_BYTES
        return self._view[body : min(body + len(start), self.end)] == start

    def leave_shared_buffer(self) -> None:
        """Leaves the shared buffer, and gives memory back when nothing is left."""
        if self.position == self.end:
            self.clear()
        elif self._view is self._buffers.shared:
            if self._is_large():
                self._move_to_mapping()
            else:
                self._view = memoryview(bytearray(self._view[self.position : self.end]))
                self.end -= self.position
                self.position = 0

    def clear(self) -> None:
        if self._mapped:
            self._mapped = False
            self._buffers.give_back(self._view)
        self._view = _NOTHING
        self.position = self.end = 0

    def _is_large(self) -> bool:
        if self._mapped:
            return True
        have = self.end - self.position
        if have < LARGE_START_BYTES:
            return False
        size: int = _unpack_length(self._view, self.position)[0]
        return size > LARGE_FRAME_BYTES and size + LENGTH_BYTES > have

    def _move_to_mapping(self) -> None:
        have = self.end - self.position
        frame_bytes = self._frame_bytes()
        mapping = self._buffers.take(min(frame_bytes, max(MAPPING_BYTES_MIN, GROWTH * have)))
        mapping[:have] = self._view[self.position : self.end]
        self._view = mapping
        self._mapped = True
        self.position = 0
        self.end = have

    def _mapping_space(self) -> memoryview:
        frame_bytes = self._frame_bytes()
        if self.end == len(self._view):
            self._grow(min(frame_bytes, GROWTH * self.end))
        return self._view[self.end : frame_bytes]

    def _grow(self, size: int) -> None:
        small = self._view
        mapping = small.obj
        assert isinstance(mapping, mmap.mmap)
        small.release()
        try:
            mapping.resize(size)
            self._view = memoryview(mapping)
        except (BufferError, SystemError):
            # A view of an earlier frame is still alive, or the system cannot remap.
            self._view = self._buffers.take(size)
            self._view[: self.end] = memoryview(mapping)[: self.end]

    def _frame_bytes(self) -> int:
        size: int = _unpack_length(self._view, self.position)[0]
        return size + LENGTH_BYTES


class AnswerBuffer:
    """Bytes that have arrived and are not handled yet: view[start:end]."""

    __slots__ = ("_end", "_size_max", "_small_answers", "_start", "_view")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._view = memoryview(bytearray(ANSWER_START_BYTES))
        self._start = 0
        self._end = 0
        self._small_answers = 0  # since one that needed more than ANSWER_START_BYTES

    @property
    def capacity(self) -> int:
        return len(self._view)

    def space(self) -> memoryview:
        """Where the next bytes go; never empty. Call `next_frame` until None first."""
        if self._start == self._end:
            self._start = self._end = 0
            if self._small_answers > IDLE_ANSWERS and self.capacity > ANSWER_START_BYTES:
                self._view = memoryview(bytearray(ANSWER_START_BYTES))
        else:
            self._make_room()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, a view that lives until the next call."""
        body = self._start + LENGTH_BYTES
        if body > self._end:
            return None
        frame_end = body + self._size()
        if frame_end > self._end:
            return None
        if frame_end - self._start > ANSWER_START_BYTES:
            self._small_answers = 0
        else:
            self._small_answers += 1
        self._start = frame_end
        return self._view[body:frame_end]

    def _size(self) -> int:
        size: int = _unpack_length(self._view, self._start)[0]
        if not 0 <= size <= self._size_max:
            raise InvalidFrame(size, self._size_max)
        return size

    def _make_room(self) -> None:
        """The frame that has begun goes to the front, of a larger mapping if it has to."""
        held = self._end - self._start
        needed = LENGTH_BYTES + (self._size() if held >= LENGTH_BYTES else 0)
        if self._start + max(needed, held + 1) <= self.capacity:
            return
        view = self._view
        if needed > self.capacity:
            capacity = -(-needed // mmap.PAGESIZE) * mmap.PAGESIZE
            view = memoryview(mmap.mmap(-1, capacity, flags=_PRIVATE))
        view[:held] = self._view[self._start : self._end]
        self._view = view
        self._start, self._end = 0, held
