"""`buffer.memory`: how many bytes of records may wait or be under way.

A batch reserves `batch.size` bytes, or more for a record that is larger, when it is begun, and
gives them back when it is done, as in Kafka. Who finds too few waits in line; whoever comes later
waits behind, so a large record is not starved by small ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryRequest:
    """A place in the line."""

    __slots__ = ("is_granted", "size", "wake")

    def __init__(self, size: int, wake: Callable[[], object]) -> None:
        self.size = size
        self.wake = wake
        self.is_granted = False


class BufferPool:
    """Touched under the producer's lock; `wake` of a request is called with it."""

    __slots__ = ("_line", "available_bytes", "total_bytes")

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self._line: deque[MemoryRequest] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Whether a caller waits for memory, which makes every batch due."""
        return bool(self._line)

    def take(self, size: int) -> bool:
        if self._line or self.available_bytes < size:
            return False
        self.available_bytes -= size
        return True

    def stand_in_line(self, size: int, wake: Callable[[], object]) -> MemoryRequest:
        assert size <= self.total_bytes, size
        request = MemoryRequest(size, wake)
        self._line.append(request)
        self._grant()
        return request

    def leave_line(self, request: MemoryRequest) -> None:
        """A caller gives up. If memory was granted to it meanwhile, the next in line gets it."""
        if request.is_granted:
            self.give_back(request.size)
        else:
            self._line.remove(request)
            self._grant()

    def give_back(self, size: int) -> None:
        self.available_bytes += size
        assert self.available_bytes <= self.total_bytes, self.available_bytes
        self._grant()

    def _grant(self) -> None:
        while self._line and self._line[0].size <= self.available_bytes:
            request = self._line.popleft()
            self.available_bytes -= request.size
            request.is_granted = True
            request.wake()
