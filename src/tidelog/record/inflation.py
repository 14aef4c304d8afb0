"""How far the compressed batches of one request may inflate, together.

A few bytes can inflate to megabytes, and a request carries many batches: a bound for each alone
leaves a small request free to take gigabytes. One budget serves the whole request. A batch may take
what is left of it, and BATCH_BYTES_SURE in any case: most clients fill a batch up to one megabyte
before they compress it, so an honest batch passes whatever came before it. What fails to decompress
costs as much as it could have inflated to.

On the event loop a request may also take LOOP_NS_MAX of time for its records, by an estimate. What
takes longer raises HeavyRecords, and is done again in a thread with `for_thread`.

Beyond the bound the answer is MESSAGE_TOO_LARGE. The Java producer, which fills batches by their
compressed size, splits such a batch and sends the halves, each with a budget of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.record.batch import Codec
from tidelog.record.errors import RecordsTooLarge, UndecodableRecords

if TYPE_CHECKING:
    from tidelog.record.kernel import Buffer

REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024  # as socket.request.max.bytes
REQUEST_BYTES_SURE: Final = 16 * 1024 * 1024
BATCH_BYTES_SURE: Final = 1024 * 1024
RATIO_SURE: Final = 64
LOOP_NS_MAX: Final = 4_000_000
LOOP_PIECES_MAX: Final = 1024  # blocks, members or frames of compressed data
GUNZIP_NS_PER_BYTE: Final = 4  # and the other codecs 1; a walk of the records 1 more


class HeavyRecords(Exception):
    """These records take too long for the event loop; nothing has been done with them."""


class InflationBudget:
    """Lives for one request; `bytes_left` never goes below 0."""

    __slots__ = ("_loop_ns_left", "bytes_left")

    def __init__(self, bytes_max: int = REQUEST_BYTES_MAX, loop_ns: int | None = None) -> None:
        self.bytes_left = bytes_max
        self._loop_ns_left = loop_ns  # None in a thread

    @classmethod
    def for_request(cls, request_bytes: int) -> InflationBudget:
        """16 MiB for any request and 64 times what it carries, at most 100 MiB."""
        bytes_max = min(REQUEST_BYTES_SURE + RATIO_SURE * request_bytes, REQUEST_BYTES_MAX)
        return cls(bytes_max, LOOP_NS_MAX)

    def for_thread(self) -> InflationBudget:
        """What is left, without a look at the time."""
        return InflationBudget(self.bytes_left)

    def take_time(self, estimated_ns: int) -> None:
        """HeavyRecords if the loop has not so much time left for this request."""
        if self._loop_ns_left is not None:
            if estimated_ns > self._loop_ns_left:
                raise HeavyRecords
            self._loop_ns_left -= estimated_ns

    def decompress(self, codec: Codec, data: Buffer, magic: int = 2) -> bytes | bytearray:
        from tidelog.record.compression import decompress

        limit_bytes = max(self.bytes_left, BATCH_BYTES_SURE)
        if self._loop_ns_left is not None:
            return self._decompress_on_loop(codec, data, magic, limit_bytes)
        left = self.bytes_left
        self.bytes_left = 0
        inflated = decompress(codec, data, limit_bytes, magic)
        self.bytes_left = max(left - len(inflated), 0)
        return inflated

    def _decompress_on_loop(
        self, codec: Codec, data: Buffer, magic: int, limit_bytes: int
    ) -> bytes | bytearray:
        """As far as time allows; where it does not, a thread finds out what is wrong."""
        from tidelog.record.compression import decompress

        assert self._loop_ns_left is not None
        ns_per_byte = 1 + (GUNZIP_NS_PER_BYTE if codec is Codec.GZIP else 1)
        loop_bytes = min(limit_bytes, self._loop_ns_left // ns_per_byte)
        try:
            inflated = decompress(codec, data, loop_bytes, magic, LOOP_PIECES_MAX)
        except RecordsTooLarge:
            self._loop_ns_left = 0
            raise HeavyRecords from None
        except UndecodableRecords:
            self.bytes_left = self._loop_ns_left = 0
            raise
        self._loop_ns_left -= ns_per_byte * len(inflated)
        self.bytes_left = max(self.bytes_left - len(inflated), 0)
        return inflated
