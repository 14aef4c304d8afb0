"""The dump as lines of text, those of Kafka 3.9's DumpLogSegments to the letter."""

from __future__ import annotations

import json
from struct import Struct
from typing import TextIO

from tidelog.log.producer_snapshots import SnapshotRow
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.message import Message
from tidelog.protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tidelog.tools.dump.message_json import to_json
from tidelog.tools.dump.output import Decoded, JsonValue
from tidelog.tools.dump.stored_batch import DumpedRecord, StoredBatch

CONTROL_NAMES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
_KRAFT_RECORDS: dict[int, tuple[str, type[Message]]] = {
    3: ("SnapshotHeader", SnapshotHeaderRecord),
    4: ("SnapshotFooter", SnapshotFooterRecord),
    5: ("KRaftVersion", KRaftVersionRecord),
    6: ("KRaftVoters", VotersRecord),
}
_CONTROL_KEY = Struct(">hh")
_MARKER = Struct(">hi")
_SEQUENCES = 1 << 31


class TextOutput:
    def __init__(self, stream: TextIO, *, skip_record_metadata: bool = False) -> None:
        self._stream = stream
        self._skip_record_metadata = skip_record_metadata

    def begin_file(self, path: str) -> None:
        self.note(f"Dumping {path}")

    def note(self, text: str) -> None:
        self._stream.write(text + "\n")

    def batch(self, batch: StoredBatch) -> None:
        self.note(batch_line(batch))

    def record(self, batch: StoredBatch, record: DumpedRecord, decoded: Decoded | None) -> None:
        prefix = "| "
        parts = []
        if not self._skip_record_metadata:
            parts.append(prefix + record_line(batch, record))
            prefix = " "
        if decoded is not None:
            if decoded.key is not None:
                parts.append(f"{prefix}key: {shown(decoded.key)}")
            if decoded.payload is not None:
                parts.append(f" payload: {shown(decoded.payload)}")
        self.note("".join(parts))

    def offset_entry(self, offset: int, position: int) -> None:
        self.note(f"offset: {offset} position: {position}")

    def time_entry(self, timestamp: int, offset: int) -> None:
        self.note(f"timestamp: {timestamp} offset: {offset}")

    def aborted_txn(self, version: int, aborted: AbortedTxn) -> None:
        self.note(
            f"version: {version} producerId: {aborted.producer_id} "
            f"firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset} "
            f"lastStableOffset: {aborted.last_stable_offset}"
        )

    def producer(self, row: SnapshotRow) -> None:
        self.note(producer_line(row))

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.flush()


def batch_line(batch: StoredBatch) -> str:
    if batch.is_legacy:
        start = f"offset: {batch.last_offset}"
    else:
        start = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.records_count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {_bool(batch.is_transactional)} "
            f"isControl: {_bool(batch.is_control)} "
            f"deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        )
    return (
        f"{start} position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} "
        f"size: {batch.size} magic: {batch.magic} compresscodec: {batch.codec} crc: {batch.crc} "
        f"isvalid: {_bool(batch.is_valid)}"
    )


def record_line(batch: StoredBatch, record: DumpedRecord) -> str:
    line = (
        f"offset: {record.offset} {batch.timestamp_type}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if record.legacy_crc is not None:
        crc, holds = record.legacy_crc
        return f"{line} isValid: {_bool(holds)} crc: {crc}}}"
    names = ",".join(name for name, _ in record.headers)
    line += f" sequence: {record.sequence} headerKeys: [{names}]"
    return f"{line} {control_text(record)}" if batch.is_control else line


def control_text(record: DumpedRecord) -> str:
    key, value = record.key or b"", record.value or b""
    number = _CONTROL_KEY.unpack_from(key)[1] if len(key) >= _CONTROL_KEY.size else -1
    if number in (0, 1) and len(value) >= _MARKER.size:
        epoch = _MARKER.unpack_from(value)[1]
        return f"endTxnMarker: {CONTROL_NAMES[number]} coordinatorEpoch: {epoch}"
    if number in _KRAFT_RECORDS:
        name, kind = _KRAFT_RECORDS[number]
        try:
            return f"{name} {shown(to_json(kind.decode(memoryview(value), 0, 0), 0))}"
        except DecodeError as problem:
            return f"{name} unreadable: {problem}"
    return f"controlType: {CONTROL_NAMES.get(number, 'UNKNOWN')}({number})"


def producer_line(row: SnapshotRow) -> str:
    first_offset = row.current_txn_first_offset
    line = (
        f"producerId: {row.producer_id} producerEpoch: {row.producer_epoch} "
        f"coordinatorEpoch: {row.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(first_offset if first_offset >= 0 else None)} "
        f"lastTimestamp: {row.timestamp} "
    )
    if row.last_offset < 0:
        return line
    first_sequence = (row.last_sequence - row.offset_delta) % _SEQUENCES
    return (
        f"{line}firstSequence: {first_sequence} lastSequence: {row.last_sequence} "
        f"lastOffset: {row.last_offset} offsetDelta: {row.offset_delta} timestamp: {row.timestamp}"
    )


def shown(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)
