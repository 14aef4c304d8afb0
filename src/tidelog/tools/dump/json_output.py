"""The dump as JSON lines: one object a batch, record, entry, producer or remark.

Every object has `kind` and `file`; the other names are those of the text. Keys and values are text
where they are UTF-8, else `{"base64": "..."}`; what a decoder gives is nested as it is.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TextIO

from tidelog.log.producer_snapshots import SnapshotRow
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.tools.dump.message_json import camel_case
from tidelog.tools.dump.output import Decoded, JsonValue
from tidelog.tools.dump.stored_batch import DumpedRecord, StoredBatch
from tidelog.tools.dump.text_output import control_text


class JsonLinesOutput:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._file = ""

    def _write(self, kind: str, fields: dict[str, JsonValue]) -> None:
        row = {"kind": kind, "file": self._file, **fields}
        self._stream.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")

    def begin_file(self, path: str) -> None:
        self._file = path

    def note(self, text: str) -> None:
        self._write("remark", {"text": text})

    def batch(self, batch: StoredBatch) -> None:
        self._write("batch", batch_fields(batch))

    def record(self, batch: StoredBatch, record: DumpedRecord, decoded: Decoded | None) -> None:
        fields: dict[str, JsonValue] = {
            "offset": record.offset,
            "timestampType": batch.timestamp_type,
            "timestamp": record.timestamp,
            "sequence": record.sequence,
            "headers": [[name, bytes_json(value)] for name, value in record.headers],
        }
        if batch.is_control:
            fields["control"] = control_text(record)
        if decoded is not None:
            fields["key"], fields["payload"] = decoded
        else:
            fields["key"], fields["value"] = bytes_json(record.key), bytes_json(record.value)
        self._write("record", fields)

    def offset_entry(self, offset: int, position: int) -> None:
        self._write("offsetIndexEntry", {"offset": offset, "position": position})

    def time_entry(self, timestamp: int, offset: int) -> None:
        self._write("timeIndexEntry", {"timestamp": timestamp, "offset": offset})

    def aborted_txn(self, version: int, aborted: AbortedTxn) -> None:
        fields = {camel_case(name): value for name, value in aborted._asdict().items()}
        self._write("abortedTransaction", {"version": version, **fields})

    def producer(self, row: SnapshotRow) -> None:
        self._write("producer", {camel_case(k): v for k, v in row._asdict().items()})

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.flush()


def batch_fields(batch: StoredBatch) -> dict[str, JsonValue]:
    return {
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.records_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "timestampType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "codec": batch.codec,
        "crc": batch.crc,
        "isValid": batch.is_valid,
    }


def bytes_json(content: bytes | None) -> JsonValue:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}
