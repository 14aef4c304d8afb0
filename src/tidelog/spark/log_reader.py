"""Batch reading of segment files: Spark's side of `option("path", ...)`.

The driver plans from the files' names and indexes; executors read the bytes, so the directory must
be visible to them under the same path. A file that was deleted since is data loss.

A task reads slices: ranges of offsets and the bytes that hold them. Control batches are left out,
and with isolation.level=read_committed so are aborted transactions. Old message formats and all
codecs are read. Checksums are verified unless check.crcs=false.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.client.columns.arrow import BatchAssembler, Run
from tidelog.client.columns.batch_selection import parts_of, select_batches, unreadable
from tidelog.client.errors import CorruptRecordsFetched
from tidelog.protocol.messages.fetch import AbortedTransaction as FetchedAbort
from tidelog.spark.log_directory import AbortedTransaction, NoLog, walk_batches
from tidelog.spark.options import FETCH_BYTES, ROWS_MAX, InvalidOption, SourceOptions

if TYPE_CHECKING:
    from tidelog.client.columns.batch_selection import Part
    from tidelog.spark.log_planning import LogSlice

BYTES_MAX: Final = 8 * 1024 * 1024


class SlicesPartition(InputPartition):
    """One task."""

    def __init__(self, slices: list[LogSlice]) -> None:
        super().__init__(slices)
        self.slices = slices


class LogReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        from tidelog.spark.log_planning import plan_slices

        self.options.check_batch()
        try:
            return [SlicesPartition(slices) for slices in plan_slices(self.options)]
        except (NoLog, OSError) as problem:
            raise InvalidOption("path", str(problem)) from problem

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition.slices) if isinstance(partition, SlicesPartition) else iter(())

    def _read(self, slices: list[LogSlice]) -> Iterator[pa.RecordBatch]:
        from tidelog.spark.executor import process_assembler

        check_crcs = self.options.driver_config().flag("check.crcs")
        assembler = process_assembler(self.options.include_headers)
        for wanted in slices:
            try:
                yield from read_slice(wanted, assembler, check_crcs=check_crcs)
            except FileNotFoundError:
                self.options.data_loss.report(f"{wanted.path} was deleted while it was read")


def read_slice(
    wanted: LogSlice, assembler: BatchAssembler, *, check_crcs: bool
) -> Iterator[pa.RecordBatch]:
    position = wanted.position
    next_offset = wanted.start_offset
    for position, view, rows in walk_batches(
        wanted.path, wanted.position, wanted.end_position, FETCH_BYTES
    ):
        end = rows[-1].position + rows[-1].size
        selection = select_batches(
            wanted.partition,
            view[:end],
            wanted.start_offset,
            wanted.end_offset,
            _aborted_from(wanted.aborted, rows[0].base_offset),
        )
        parts = parts_of(wanted.partition, selection, check_crcs=check_crcs)
        yield from _record_batches(wanted, parts, assembler)
        position += end
        next_offset = rows[-1].last_offset + 1
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
