"""Where the answers of one peer arrive: one buffer, which an answer fills without being copied.

    frame = size int32 big-endian | size bytes

The peer is a broker of the same cluster and is trusted with its sizes: room for a whole frame is
taken at once, as a mapping that costs memory only page by page. A frame is a view of the buffer and
is gone when the next one is asked for. The room of a large answer is kept for the next one, and
given back after IDLE_ANSWERS that needed little of it.
"""

from __future__ import annotations

import mmap
from struct import Struct

from tidelog.network.framing import LENGTH_BYTES, InvalidFrame
from tidelog.network.settings import KIB

START_BYTES = 64 * KIB
IDLE_ANSWERS = 256

_unpack_length = Struct(">i").unpack_from
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class AnswerBuffer:
    """Bytes that have arrived and are not handled yet: view[start:end]."""

    __slots__ = ("_end", "_size_max", "_small_answers", "_start", "_view")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._view = memoryview(bytearray(START_BYTES))
        self._start = 0
        self._end = 0
        self._small_answers = 0  # since one that needed more than START_BYTES

    @property
    def capacity(self) -> int:
        return len(self._view)

    def space(self) -> memoryview:
        """Where the next bytes go; never empty. Call `next_frame` until None first."""
        if self._start == self._end:
            self._start = self._end = 0
            if self._small_answers > IDLE_ANSWERS and self.capacity > START_BYTES:
                self._view = memoryview(bytearray(START_BYTES))
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
        if frame_end - self._start > START_BYTES:
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
