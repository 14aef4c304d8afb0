"""The dump as one table, a Parquet or Arrow (IPC) file; needs pyarrow, the extra `arrow`.

A table has rows of one kind: records where the dump is deep, else batches, and for the other files
the entries they hold. All files of a dump must give the same kind.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.log.producer_snapshots import SnapshotRow
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.tools.dump.dump_errors import DumpError
from tidelog.tools.dump.json_output import batch_fields
from tidelog.tools.dump.output import Decoded
from tidelog.tools.dump.stored_batch import DumpedRecord, StoredBatch

ROWS_MAX: Final = 1 << 16
CONTENT_BYTES_MAX: Final = 32 << 20

_NUMBERS = {
    "batches": "position size baseOffset lastOffset producerId deleteHorizonMs maxTimestamp crc",
    "offset index entries": "offset position",
    "time index entries": "timestamp offset",
    "aborted transactions": "version producerId firstOffset lastOffset lastStableOffset",
    "producers": (
        "producerId producerEpoch lastSequence lastOffset offsetDelta timestamp coordinatorEpoch "
        "currentTxnFirstOffset"
    ),
}


def require_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise DumpError(
            "--output parquet and arrow need pyarrow, which is not installed: "
            "pip install 'tidelog[arrow]'"
        ) from error
    return pyarrow


class TableOutput:
    def __init__(self, path: str, form: str, *, deep: bool) -> None:
        self._arrow = require_pyarrow()
        self._path = path
        self._form = form
        self._deep = deep
        self._file = ""
        self._kind = ""
        self._rows: list[dict[str, Any]] = []
        self._content_bytes = 0
        self._schema: Any = None
        self._writer: Any = None

    def begin_file(self, path: str) -> None:
        self._file = path

    def note(self, text: str) -> None:
        """A remark is no row."""

    def batch(self, batch: StoredBatch) -> None:
        if not self._deep:
            self._add("batches", dict(batch_fields(batch)))

    def record(self, batch: StoredBatch, record: DumpedRecord, decoded: Decoded | None) -> None:
        self._content_bytes += len(record.key or b"") + len(record.value or b"")
        self._add(
            "records",
            {
                "batchPosition": batch.position,
                "offset": record.offset,
                "timestampType": batch.timestamp_type,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": name, "value": value} for name, value in record.headers],
                "sequence": record.sequence,
                "isTransactional": batch.is_transactional,
                "isControl": batch.is_control,
            },
        )

    def offset_entry(self, offset: int, position: int) -> None:
        self._add("offset index entries", {"offset": offset, "position": position})

    def time_entry(self, timestamp: int, offset: int) -> None:
        self._add("time index entries", {"timestamp": timestamp, "offset": offset})

    def aborted_txn(self, version: int, aborted: AbortedTxn) -> None:
        self._add_numbers("aborted transactions", (version, *aborted))

    def producer(self, row: SnapshotRow) -> None:
        self._add_numbers("producers", row)

    def _add_numbers(self, kind: str, values: tuple[int, ...]) -> None:
        self._add(kind, dict(zip(_NUMBERS[kind].split(), values, strict=True)))

    def _add(self, kind: str, row: dict[str, Any]) -> None:
        if kind != self._kind:
            self._begin(kind)
        row["file"] = self._file
        self._rows.append(row)
        if len(self._rows) >= ROWS_MAX or self._content_bytes >= CONTENT_BYTES_MAX:
            self.flush()

    def _begin(self, kind: str) -> None:
        if self._kind:
            raise DumpError(
                f"a {self._form} file holds rows of one kind, but {self._file} has {kind} after "
                f"{self._kind}: dump them one after the other"
            )
        self._kind = kind
        self._schema = self._schema_of(kind)
        self._writer = self._open_writer()

    def _schema_of(self, kind: str) -> Any:
        arrow = self._arrow
        fields = [arrow.field("file", arrow.string())]
        if kind == "records":
            return arrow.schema([*fields, *_record_fields(arrow)])
        fields += [arrow.field(name, arrow.int64()) for name in _NUMBERS[kind].split()]
        if kind == "batches":
            fields += _batch_fields(arrow)
        return arrow.schema(fields)

    def _open_writer(self) -> Any:
        if self._form == "arrow":
            return self._arrow.ipc.new_file(self._path, self._schema)
        from pyarrow import parquet

        return parquet.ParquetWriter(self._path, self._schema, compression="zstd")

    def flush(self) -> None:
        if not self._rows:
            return
        self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema))
        self._rows = []
        self._content_bytes = 0

    def close(self) -> None:
        if self._writer is None:
            raise DumpError(f"nothing to write to {self._path}: the files hold no rows")
        self.flush()
        self._writer.close()


def _record_fields(arrow: Any) -> list[Any]:
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    return [
        arrow.field("batchPosition", arrow.int64()),
        arrow.field("offset", arrow.int64()),
        arrow.field("timestampType", arrow.string()),
        arrow.field("timestamp", arrow.int64()),
        arrow.field("key", arrow.binary()),
        arrow.field("value", arrow.binary()),
        arrow.field("headers", arrow.list_(header)),
        arrow.field("sequence", arrow.int32()),
        arrow.field("isTransactional", arrow.bool_()),
        arrow.field("isControl", arrow.bool_()),
    ]


def _batch_fields(arrow: Any) -> list[Any]:
    small = ("magic", "count", "baseSequence", "lastSequence", "producerEpoch")
    numbers = [arrow.field(name, arrow.int32()) for name in (*small, "partitionLeaderEpoch")]
    flags = [arrow.field(n, arrow.bool_()) for n in ("isTransactional", "isControl", "isValid")]
    return [
        *numbers,
        *flags,
        arrow.field("timestampType", arrow.string()),
        arrow.field("codec", arrow.string()),
    ]
