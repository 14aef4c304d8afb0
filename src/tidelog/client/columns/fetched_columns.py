"""What a consumer has fetched, as Arrow: one call of the kernel for everything a poll gives out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidelog.client.columns.arrow import BatchAssembler, Run
from tidelog.client.columns.batch_selection import unreadable
from tidelog.client.errors import CorruptRecordsFetched

if TYPE_CHECKING:
    from tidelog.client.consumer.fetch_buffer import FetchBuffer, FetchedPartition
    from tidelog.record.kernel import RecordsPart

ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 16 * 1024 * 1024


class FetchedColumns:
    """Of one consumer; keeps buffers and constant columns between polls."""

    def __init__(self) -> None:
        self._assembler = BatchAssembler(with_headers=True)

    @property
    def schema(self) -> pa.Schema:
        return self._assembler.schema

    def take(self, buffer: FetchBuffer, rows_max: int | None) -> pa.Table | None:
        """Whole batches, as many as are there within bounds; None if there are none.

        Where the first batch alone has more than `rows_max` rows, the rest of it comes next time.
        """
        gathered = _Gathered(ROWS_MAX if rows_max is None else rows_max)
        try:
            for entry in buffer.entries():
                entry.give_back_decoded()
                if not gathered.take_from(entry):
                    if entry.is_finished and gathered.rows <= gathered.rows_max:
                        buffer.remove(entry)
                    break
        except CorruptRecordsFetched:
            if not gathered.parts:
                raise
        return self._table(gathered) if gathered.parts else None

    def _table(self, gathered: _Gathered) -> pa.Table | None:
        runs = gathered.runs
        try:
            columns = self._assembler.decode(gathered.parts)
            rows = max(columns.records_count, 1)
            batches = list(self._assembler.assemble(columns, runs, rows))
        except (ValueError, pa.ArrowInvalid) as problem:
            raise unreadable(runs[0].partition, gathered.parts[0][2], problem) from problem
        table = pa.Table.from_batches(batches, schema=self.schema)
        if table.num_rows > gathered.rows_max:
            table = self._cut(table, gathered)
        return table if table.num_rows else None

    def _cut(self, table: pa.Table, gathered: _Gathered) -> pa.Table:
        """Only one batch was taken, and it is too large: what is left of it stays."""
        assert gathered.entry is not None
        table = table.slice(0, gathered.rows_max)
        gathered.entry.untake_after(table.column("offset")[-1].as_py())
        return table


class _Gathered:
    """Parts for one call of the kernel."""

    __slots__ = ("bytes", "entry", "parts", "rows", "rows_max", "runs")

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self.parts: list[RecordsPart] = []
        self.runs: list[Run] = []
        self.rows = 0
        self.bytes = 0
        self.entry: FetchedPartition | None = None  # the last one taken from

    def take_from(self, entry: FetchedPartition) -> bool:
        """Whether there is room for more."""
        rows_left, bytes_left = self.rows_max - self.rows, BYTES_MAX - self.bytes
        if self.parts and (rows_left <= 0 or bytes_left <= 0 or entry.rows_next > rows_left):
            return False
        position = entry.state.position
        assert position is not None
        self.entry = entry
        rows, kind = 0, None
        for records, timestamp_type, _ in entry.take_parts(rows_left, bytes_left):
            if timestamp_type != kind:
                self._note_run(entry, kind, rows, position.offset)
                rows, kind = 0, timestamp_type
            rows += records[1]
            self.parts.append(records)
            self.bytes += len(records[0])  # type: ignore[arg-type]
        self._note_run(entry, kind, rows, position.offset)
        return entry.is_finished and self.rows < self.rows_max and self.bytes < BYTES_MAX

    def _note_run(
        self, entry: FetchedPartition, timestamp_type: int | None, rows: int, start_offset: int
    ) -> None:
        if timestamp_type is None:
            return
        self.rows += rows
        self.runs.append(Run(entry.state.partition, timestamp_type, rows, start_offset, 1 << 63))
