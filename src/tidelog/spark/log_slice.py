"""A piece of a segment file as Arrow record batches: read, selected, decoded, no broker.

A slice is a range of offsets and the bytes that hold them. Control batches are left out, and with
isolation.level=read_committed so are aborted transactions. Old message formats and all codecs are
read. Checksums are verified unless check.crcs=false.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from tidelog.client.arrow import BatchAssembler, Run
from tidelog.client.batch_selection import parts_of, select_batches, unreadable
from tidelog.client.errors import CorruptRecordsFetched
from tidelog.protocol.messages.fetch import AbortedTransaction as FetchedAbort
from tidelog.spark.log_directory import AbortedTransaction, walk_batches
from tidelog.spark.options import FETCH_BYTES, ROWS_MAX
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.batch_selection import Part

BYTES_MAX: Final = 8 * 1024 * 1024


class LogSlice(NamedTuple):
    partition: TopicPartition
    path: str
    start_offset: int
    end_offset: int
    position: int
    end_position: int
    aborted: tuple[AbortedTransaction, ...] | None  # None: read_uncommitted

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position


def read_slice(
    wanted: LogSlice, assembler: BatchAssembler, *, check_crcs: bool
) -> Iterator[pa.RecordBatch]:
    position = wanted.position
    next_offset = wanted.start_offset
    for position, view, rows in walk_batches(
        wanted.path, wanted.position, wanted.end_position, FETCH_BYTES
    ):
        end = rows[-1][0] + rows[-1][1]
        selection = select_batches(
            wanted.partition,
            view[:end],
            wanted.start_offset,
            wanted.end_offset,
            _aborted_from(wanted.aborted, rows[0][4]),
        )
        parts = parts_of(wanted.partition, selection, check_crcs=check_crcs)
        yield from _record_batches(wanted, parts, assembler)
        position += end
        next_offset = rows[-1][5] + 1
        if next_offset >= wanted.end_offset:
            return
    if position < wanted.end_position:
        raise CorruptRecordsFetched(
            f"{wanted.path}: no batch at position {position}, offset {next_offset} of "
            f"{wanted.partition}"
        )


def _aborted_from(
    aborted: tuple[AbortedTransaction, ...] | None, offset: int
) -> list[FetchedAbort] | None:
    """Those whose marker is still to come, as a Fetch answer names them."""
    if aborted is None:
        return None
    return [
        FetchedAbort(producer_id=row.producer_id, first_offset=row.first_offset)
        for row in aborted
        if row.last_offset >= offset
    ]


def _record_batches(
    wanted: LogSlice, parts: Iterator[Part], assembler: BatchAssembler
) -> Iterator[pa.RecordBatch]:
    """Parts gathered for one call of the kernel at a time."""
    gathered: list[Part] = []
    rows = size_bytes = 0
    for part in parts:
        if rows + part.records[1] > ROWS_MAX or size_bytes >= BYTES_MAX:
            yield from _decoded(wanted, gathered, assembler)
            gathered, rows, size_bytes = [], 0, 0
        gathered.append(part)
        rows += part.records[1]
        size_bytes += len(memoryview(part.records[0]))
    yield from _decoded(wanted, gathered, assembler)


def _decoded(
    wanted: LogSlice, parts: list[Part], assembler: BatchAssembler
) -> Iterator[pa.RecordBatch]:
    if not parts:
        return
    runs: list[Run] = []
    for part in parts:
        rows = part.records[1]
        if runs and runs[-1].timestamp_type == part.timestamp_type:
            runs[-1] = runs[-1]._replace(rows=runs[-1].rows + rows)
        else:
            runs.append(
                Run(
                    wanted.partition,
                    part.timestamp_type,
                    rows,
                    wanted.start_offset,
                    wanted.end_offset,
                )
            )
    try:
        columns = assembler.decode([part.records for part in parts])
        batches = list(assembler.assemble(columns, runs, ROWS_MAX))
    except (ValueError, pa.ArrowInvalid) as problem:
        raise unreadable(wanted.partition, parts[0].records[2], problem) from problem
    yield from batches
