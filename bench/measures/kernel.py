"""The record kernel on one processor: records of 100 B to Arrow columns and back, without any I/O.

Decoding verifies the checksums of ten batches and takes them in one call, as a Fetch answer brings
them. Encoding makes as many batches of the columns, with their checksums. What counts is processor
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.arena import Arena, Sample
from bench.table import Figure, Report
from tidelog.record import kernel

TITLE = "record kernel, one processor"
BATCH_RECORDS = 4_000
BATCHES = 10
HEADER_BYTES = 61
ATTRIBUTES_POSITION = 21
TARGET_M_RECORDS = 15.0


def run(arena: Arena) -> Report:
    if not kernel.COMPILED:
        return Report(TITLE, remarks=["the compiled kernel is not built: nothing measured"])
    calls = arena.size.of(20, 100)
    codec = _Codec()
    figures = []
    for label, work in (("decode 100 B records", codec.decode), ("encode", codec.encode)):
        work()
        best = max(_records_per_second(work, calls) for _ in range(arena.size.rounds))
        figures.append(
            Figure(
                label,
                "M records/s",
                {"tidelog": Sample(best / 1e6)},
                True,
                own_limit=TARGET_M_RECORDS,
            )
        )
    return Report(TITLE, figures)


def _records_per_second(work: Callable[[], None], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        work()
    return calls * BATCHES * BATCH_RECORDS / (time.process_time() - started)


class _Codec:
    """The same records in both forms."""

    def __init__(self) -> None:
        records = [(b"%08d" % row, b"v" * 100, (), row) for row in range(BATCH_RECORDS)]
        batch, base_timestamp, _ = kernel.encode_records(records, HEADER_BYTES)
        self._batches = [memoryview(bytes(batch)) for _ in range(BATCHES)]
        self._parts = [
            (view[HEADER_BYTES:], BATCH_RECORDS, number * BATCH_RECORDS, base_timestamp, None)
            for number, view in enumerate(self._batches)
        ]
        self._checksum = kernel.crc32c(self._batches[0][ATTRIBUTES_POSITION:])
        self._columns = kernel.records_to_columns(self._parts)

    def decode(self) -> None:
        for batch in self._batches:
            assert kernel.crc32c(batch[ATTRIBUTES_POSITION:]) == self._checksum
        self._columns = kernel.records_to_columns(self._parts, self._columns)

    def encode(self) -> None:
        for number in range(BATCHES):
            first = number * BATCH_RECORDS
            batch, _, _ = kernel.encode_columns(
                self._columns, first, first + BATCH_RECORDS, None, HEADER_BYTES
            )
            kernel.crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
