"""How far the compressed batches of one request may inflate, together.

A few bytes can inflate to megabytes, and a request carries many batches: a bound for each alone
leaves a small request free to take gigabytes. One budget serves the whole request. A batch may take
what is left of it, and BATCH_BYTES_SURE in any case: most clients fill a batch up to one megabyte
before they compress it, so an honest batch passes whatever came before it. What fails to decompress
costs as much as it could have inflated to.

Beyond the bound the answer is MESSAGE_TOO_LARGE. The Java producer, which fills batches by their
compressed size, splits such a batch and sends the halves, each with a budget of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.record.batch import Codec
    from tidelog.record.kernel import Buffer

REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024  # as socket.request.max.bytes
REQUEST_BYTES_SURE: Final = 16 * 1024 * 1024
BATCH_BYTES_SURE: Final = 1024 * 1024
RATIO_SURE: Final = 64


class InflationBudget:
    """Lives for one request; `bytes_left` never goes below 0."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self.bytes_left = bytes_max

    @classmethod
    def for_request(cls, request_bytes: int) -> InflationBudget:
        """16 MiB for any request and 64 times what it carries, at most 100 MiB."""
        return cls(min(REQUEST_BYTES_SURE + RATIO_SURE * request_bytes, REQUEST_BYTES_MAX))

    def decompress(self, codec: Codec, data: Buffer, magic: int = 2) -> bytes | bytearray:
        from tidelog.record.compression import decompress

        limit_bytes = max(self.bytes_left, BATCH_BYTES_SURE)
        left = self.bytes_left
        self.bytes_left = 0
        inflated = decompress(codec, data, limit_bytes, magic)
        self.bytes_left = max(left - len(inflated), 0)
        return inflated
