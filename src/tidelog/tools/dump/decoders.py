"""What keys and values mean, by the decoder asked for.

    text, long, int    org.apache.kafka.tools.api.{String,Long,Integer}Decoder, by name; text is
                       what Kafka shows without any
    offsets            records of __consumer_offsets, as JSON
    transactions       records of __transaction_state, as Kafka's line of fields

A record that cannot be decoded is shown with the reason in place of its key, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from types import ModuleType
from typing import Final

from tidelog.coordinator.stored_record import CoordinatorRecord, RecordTypes
from tidelog.coordinator.txn.states import TransactionState
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.message import Message
from tidelog.protocol.messages import classic_group_records, consumer_group_records
from tidelog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from tidelog.tools.dump.dump_errors import DumpError
from tidelog.tools.dump.message_json import to_json
from tidelog.tools.dump.output import Decoded, JsonValue
from tidelog.tools.dump.stored_batch import DumpedRecord

Decoder = Callable[[DumpedRecord], Decoded]
ColumnDecoder = Callable[[bytes], JsonValue]

DELETED: Final = "<DELETE>"
_DECODER_PACKAGES = ("org.apache.kafka.tools.api.", "kafka.serializer.")
_GROUP_MESSAGES = (
    "OffsetCommit",
    "GroupMetadata",
    "ConsumerGroupMetadata",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata",
    "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment",
)


def _pair(name: str) -> tuple[type[Message], type[Message]]:
    is_new = name.startswith("ConsumerGroup")
    module: ModuleType = consumer_group_records if is_new else classic_group_records
    return getattr(module, f"{name}Key"), getattr(module, f"{name}Value")


GROUP_RECORDS: Final = RecordTypes(
    {0: _pair("OffsetCommit")}
    | {number: _pair(name) for number, name in enumerate(_GROUP_MESSAGES, 1)}
)
TRANSACTION_RECORDS: Final = RecordTypes({0: (TransactionLogKey, TransactionLogValue)})


def column_decoder(class_name: str) -> ColumnDecoder:
    """By the name of Kafka's class for it; of other people's there is none here."""
    known: dict[str, ColumnDecoder] = {
        "StringDecoder": lambda data: data.decode(errors="replace"),
        "LongDecoder": lambda data: _number(data, ">q"),
        "IntegerDecoder": lambda data: _number(data, ">i"),
    }
    for package in _DECODER_PACKAGES:
        decoder = known.get(class_name.removeprefix(package))
        if decoder is not None:
            return decoder
    names = ", ".join(known)
    raise DumpError(
        f"the decoder {class_name} is a Java class, which cannot be run here; known are {names}: "
        "leave the option out and read the values from --output jsonl or parquet"
    )


def _number(data: bytes, form: str) -> int:
    layout = Struct(form)
    if len(data) < layout.size:
        raise DumpError(f"{len(data)} bytes are no number of {layout.size}")
    number: int = layout.unpack_from(data)[0]
    return number


def plain_decoder(key: ColumnDecoder, value: ColumnDecoder) -> Decoder:
    def decode(record: DumpedRecord) -> Decoded:
        return Decoded(
            None if record.key is None else key(record.key),
            None if record.value is None else value(record.value),
        )

    return decode


def decode_group_record(record: DumpedRecord) -> Decoded:
    if record.key is None:
        raise DumpError(f"the record at offset {record.offset} has no key: no group's record")
    try:
        found = GROUP_RECORDS.decode(record.key, record.value)
    except DecodeError as problem:
        return Decoded(f"Error at offset {record.offset}, skipping. {problem}", None)
    if found is None:
        number = int.from_bytes(record.key[:2], "big", signed=True)
        return Decoded(f"Unknown record type {number} at offset {record.offset}, skipping.", None)
    record_type = int.from_bytes(record.key[:2], "big")
    key: JsonValue = {"type": str(record_type), "data": to_json(found.key, 0)}
    return Decoded(key, _group_value(found))


def _group_value(record: CoordinatorRecord) -> JsonValue:
    if record.value is None:
        return DELETED
    data = to_json(record.value, record.value_version)
    if isinstance(record.value, classic_group_records.GroupMetadataValue):
        _open_members(record.value, data)
    return {"version": str(record.value_version), "data": data}


def _open_members(value: classic_group_records.GroupMetadataValue, data: JsonValue) -> None:
    """Subscriptions and assignments of consumers are messages themselves."""
    assert isinstance(data, dict)
    members = data.get("members")
    if value.protocol_type != "consumer" or not isinstance(members, list):
        return
    for member, shown in zip(value.members, members, strict=True):
        assert isinstance(shown, dict)
        for name, kind in (
            ("subscription", ConsumerProtocolSubscription),
            ("assignment", ConsumerProtocolAssignment),
        ):
            opened = _embedded(getattr(member, name), kind)
            if opened is not None:
                shown[name] = opened


def _embedded(
    content: bytes, kind: type[ConsumerProtocolSubscription] | type[ConsumerProtocolAssignment]
) -> JsonValue:
    version = int.from_bytes(content[:2], "big", signed=True)
    try:
        return to_json(kind.decode(memoryview(content), 2, version), version)
    except DecodeError:
        return None


def decode_transaction(record: DumpedRecord) -> Decoded:
    if record.key is None:
        raise DumpError(f"the record at offset {record.offset} has no key: no transaction's record")
    try:
        found = TRANSACTION_RECORDS.decode(record.key, record.value)
    except DecodeError as problem:
        raise DumpError(f"the record at offset {record.offset} is none: {problem}") from problem
    if found is None:
        version = int.from_bytes(record.key[:2], "big", signed=True)
        return Decoded(f"unknown::version={version}", None)
    assert isinstance(found.key, TransactionLogKey)
    key = f"transaction_metadata::transactionalId={found.key.transactional_id}"
    if found.value is None:
        return Decoded(key, DELETED)
    assert isinstance(found.value, TransactionLogValue)
    return Decoded(key, _transaction_text(found.value))


def _transaction_text(value: TransactionLogValue) -> str:
    partitions = ",".join(
        f"{topic.topic}-{partition}"
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    )
    return (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},"
        f"state={TransactionState(value.transaction_status).text},partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )
