"""What an output of the dump must take: the pieces of the files, in the order of the files."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tidelog.log.producer_snapshots import SnapshotRow
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.tools.dump.stored_batch import DumpedRecord, StoredBatch

JsonValue = str | int | float | bool | None | dict[str, "JsonValue"] | list["JsonValue"]


class Decoded(NamedTuple):
    """Key and payload as a decoder reads them: text, or JSON; None is not shown."""

    key: JsonValue
    payload: JsonValue


class Output(Protocol):
    def begin_file(self, path: str) -> None: ...

    def note(self, text: str) -> None:
        """A line about the file as a whole."""

    def batch(self, batch: StoredBatch) -> None: ...

    def record(self, batch: StoredBatch, record: DumpedRecord, decoded: Decoded | None) -> None: ...

    def offset_entry(self, offset: int, position: int) -> None: ...

    def time_entry(self, timestamp: int, offset: int) -> None: ...

    def aborted_txn(self, version: int, aborted: AbortedTxn) -> None: ...

    def producer(self, row: SnapshotRow) -> None: ...

    def flush(self) -> None:
        """Before something is said elsewhere."""

    def close(self) -> None: ...
