"""Batch reading of segment files: Spark's side of `option("path", ...)`.

The driver plans from the files' names and indexes; executors read the bytes, so the directory must
be visible to them under the same path. A file that was deleted since is data loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.options import InvalidOption, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.log_slice import LogSlice


class SlicesPartition(InputPartition):
    """One task."""

    def __init__(self, slices: list[LogSlice]) -> None:
        super().__init__(slices)
        self.slices = slices


class LogReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        from tidelog.spark.log_directory import NoLog
        from tidelog.spark.log_planning import plan_slices

        try:
            return [SlicesPartition(slices) for slices in plan_slices(self.options)]
        except (NoLog, OSError) as problem:
            raise InvalidOption("path", str(problem)) from problem

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition.slices) if isinstance(partition, SlicesPartition) else iter(())

    def _read(self, slices: list[LogSlice]) -> Iterator[pa.RecordBatch]:
        from tidelog.spark.log_slice import read_slice
        from tidelog.spark.process_assembler import process_assembler

        check_crcs = self.options.driver_config().flag("check.crcs")
        assembler = process_assembler(self.options.include_headers)
        for wanted in slices:
            try:
                yield from read_slice(wanted, assembler, check_crcs=check_crcs)
            except FileNotFoundError:
                self.options.data_loss.report(f"{wanted.path} was deleted while it was read")
