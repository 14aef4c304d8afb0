"""From bytes to frames: int32 length, then that many bytes. No I/O.

A frame may be empty: brokers before 1.0 answer the only message of SASL/PLAIN so.

Bytes are received where `FrameReader.buffer` says. Small frames come through a buffer that is used
again and again, and are copied out of it. A large frame gets memory of its own, into which the rest
of it is received directly; so views of it stay valid as long as somebody holds them.

The memory of large frames is mapped, not allocated: the kernel gives pages only as bytes arrive, so
a length that a broker lies about costs nothing. `FrameMemory` lends a mapping again once nobody
refers to it, because fresh pages cost as much time as receiving into them.
"""

from __future__ import annotations

import mmap
import sys
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL_BYTES: Final = 64 * 1024
FRAME_BYTES_LIMIT: Final = (1 << 31) - 1

_KEPT_MAPPINGS: Final = 4
_STEP: Final = 1 << 20
# Unless told, mmap gives memory that a forked child would write into too.
_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_unpack_length: Final = Struct(">i").unpack_from
_LENGTH_BYTES: Final = 4
# What a mapping that nobody has a view of is referred to by: the list, the loop and the call.
_UNUSED_REFERENCES: Final = 3


class InvalidFrame(Exception):
    """The peer announced a frame length that no answer has."""


class FrameMemory:
    """Mappings for large frames, shared by the connections of one client."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """Memory of `size` bytes that is the caller's as long as a view of it lives."""
        for mapping in self._kept:
            if len(mapping) >= size and sys.getrefcount(mapping) <= _UNUSED_REFERENCES:
                return memoryview(mapping)[:size]
        self._drop_smallest()
        # Answers differ a little in size; rounded up, a mapping suits the next ones too.
        made = mmap.mmap(-1, -(-size // _STEP) * _STEP, _PRIVATE)
        self._kept.append(made)
        return memoryview(made)[:size]

    def _drop_smallest(self) -> None:
        """Forgets the smallest mapping. If it is in use, it lives until its last view is gone."""
        if len(self._kept) >= _KEPT_MAPPINGS:
            self._kept.remove(min(self._kept, key=len))


class FrameReader:
    """Of one connection. `limit` is the longest frame that is taken."""

    __slots__ = ("_end", "_frame", "_have", "_limit", "_memory", "_small")

    def __init__(self, limit: int, memory: FrameMemory) -> None:
        self._limit = min(limit, FRAME_BYTES_LIMIT)
        self._memory = memory
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._end = 0  # bytes of `_small` that hold the beginning of a frame
        self._frame: memoryview | None = None  # a large frame on its way
        self._have = 0  # bytes of it that have arrived

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._frame is not None:
            return self._frame[self._have :]
        return self._small[self._end :]

    @property
    def is_within_frame(self) -> bool:
        return self._frame is not None or self._end > 0

    @property
    def is_within_large_frame(self) -> bool:
        return self._frame is not None

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames that are whole now, without their length. Raises InvalidFrame."""
        if self._frame is not None:
            self._have += count
            if self._have == len(self._frame):
                frame, self._frame = self._frame, None
                yield frame
            return
        self._end += count
        yield from self._take_apart()

    def _take_apart(self) -> Iterator[memoryview]:
        start = 0
        while self._end - start >= _LENGTH_BYTES:
            (length,) = _unpack_length(self._small, start)
            if not 0 <= length <= self._limit:
                raise InvalidFrame(f"a frame of {length} bytes (at most {self._limit} are taken)")
            begin, stop = start + _LENGTH_BYTES, start + _LENGTH_BYTES + length
            if stop > self._end:
                if stop - start > SMALL_BYTES:
                    self._begin_large(self._small[begin : self._end], length)
                    return
                break
            yield memoryview(bytes(self._small[begin:stop]))
            start = stop
        rest = bytes(self._small[start : self._end])
        self._small[: len(rest)] = rest
        self._end = len(rest)

    def _begin_large(self, arrived: memoryview, length: int) -> None:
        self._frame = self._memory.take(length)
        self._frame[: len(arrived)] = arrived
        self._have = len(arrived)
        self._end = 0
