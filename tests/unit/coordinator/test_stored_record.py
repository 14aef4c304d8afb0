"""The bytes are those that Kafka 3.9 writes and reads."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tests.support.new_offsets import new_offset
from tidelog.coordinator.group.classic.classic_group import group_metadata, group_tombstone
from tidelog.coordinator.group.offsets import (
    NewOffset,
    OffsetRecords,
    commit_payload,
    offset_tombstone,
)
from tidelog.coordinator.group.shard import GROUP_RECORD_TYPES, GroupShard
from tidelog.coordinator.stored_record import EncodedRecord
from tidelog.protocol.errors import DecodeError, EncodeError
from tidelog.protocol.messages.classic_group_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.record.batch import HEADER_SIZE
from tidelog.record.kernel import encode_records, records_to_columns
from tidelog.types import NO_PRODUCER_ID

TYPES = GROUP_RECORD_TYPES


def payload_of(group_id: str, commit: list[NewOffset]) -> bytearray:
    records = OffsetRecords(group_id)
    for each in commit:
        records.add(each)
    assert records.count == len(commit)
    return records.payload()


def message_of(group_id: str, new: NewOffset) -> EncodedRecord:
    """What the codec makes of an offset."""
    topic, partition, offset, leader_epoch, metadata, commit_timestamp, expire_timestamp = new
    expires = expire_timestamp != -1
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=-1 if expires else leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
    )
    version = 1 if expires else 3
    return b"\0\1" + key.encode(0), version.to_bytes(2, "big") + value.encode(version)


def stored(group_id: str, new: NewOffset) -> EncodedRecord:
    payload = payload_of(group_id, [new])[HEADER_SIZE:]
    columns = records_to_columns([(payload, 1, 0, 1, None)])
    return bytes(columns.key_data), bytes(columns.value_data)


def test_offset_commit_is_a_record_of_type_1_with_a_value_of_version_3() -> None:
    assert stored("g", new_offset("t", 7, 258, 5, "m", 1000)) == (
        bytes.fromhex("000100016700017400000007"),
        bytes.fromhex("000300000000000001020000000500016d00000000000003e8"),
    )


def test_offset_with_an_expiry_of_its_own_has_version_1_and_no_leader_epoch() -> None:
    assert stored("g", new_offset("t", 7, 258, 5, "m", 1000, 2000))[1] == bytes.fromhex(
        "0001000000000000010200016d00000000000003e800000000000007d0"
    )


COMMIT = [
    new_offset("t", 7, 258, 5, "m", 1000),
    new_offset("t", 2**31 - 1, 2**63 - 1, 2**31 - 1, "", 2**63 - 1),
    new_offset("u", 0, -1, -1, "mé☃", 0),
    new_offset("t", 8, 0, 9, "m", 1000, 2000),
    new_offset("t", 7, 0, -1, "x" * 32_767, 1),
    new_offset("", 0, 0, -1, "", 1),
]


@pytest.mark.parametrize("times", [1, 17, 50])
def test_records_of_a_commit_are_those_of_its_offsets_one_by_one(times: int) -> None:
    commit = COMMIT[-1:] + COMMIT * times
    records = [(*message_of("gö", each), (), 1) for each in commit]
    encoded = encode_records(records, HEADER_SIZE)[0]
    assert payload_of("gö", commit) == encoded
    assert commit_payload("gö", commit) == encoded


@pytest.mark.parametrize(
    ("group", "topic", "metadata"),
    [
        ("g" * 32_768, "t", ""),
        ("g", "t" * 32_768, ""),
        ("g", "t", "x" * 32_768),
        ("g", "t", "\ud800"),
        ("\ud800", "t", ""),
    ],
)
@pytest.mark.parametrize("others", [1, 300])
def test_a_commit_that_cannot_be_encoded_says_so_when_asked_for_its_bytes(
    group: str, topic: str, metadata: str, others: int
) -> None:
    records = OffsetRecords(group)
    records.add(new_offset(topic, 0, 1, 1, metadata, 1))
    for partition in range(others):
        records.add(new_offset("fine", partition, 1, 1, "", 1))
    with pytest.raises(EncodeError):
        records.payload()


def test_an_expiry_beyond_all_time_cannot_be_encoded() -> None:
    records = OffsetRecords("g")
    records.add(new_offset("t", 0, 1, 1, "", 1, 2**63))
    with pytest.raises(EncodeError):
        records.payload()


@pytest.mark.parametrize("producer_id", [NO_PRODUCER_ID, 1000])
def test_replaying_a_commit_is_replaying_its_records(producer_id: int) -> None:
    live, loaded = (GroupShard(0, FakeClock()) for _ in range(2))
    live.replay_commit("g", COMMIT, 70, producer_id)
    for log_offset, each in enumerate(COMMIT, 70):
        record = TYPES.decode(*message_of("g", each))
        assert record is not None
        loaded.replay(record, log_offset, producer_id)
    states = [
        (
            list(shard.groups),
            shard.groups_of_topic("t"),
            shard.groups_of_topic("none"),
            list(shard.offsets["g"]),
            shard.offsets["g"]._unstable,
        )
        for shard in (live, loaded)
    ]
    assert states[0] == states[1]
    assert bool(len(live.offsets["g"])) == (producer_id == NO_PRODUCER_ID)


def test_group_is_a_record_of_type_2_with_a_value_of_version_3() -> None:
    member = MemberMetadata(
        member_id="a-1",
        group_instance_id=None,
        client_id="a",
        client_host="/h",
        rebalance_timeout=60,
        session_timeout=10,
        subscription=b"s",
        assignment=b"p",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="a-1",
        current_state_timestamp=1000,
        members=[member],
    )
    key, encoded = group_metadata("g", value).encoded()
    assert key == bytes.fromhex("0002000167")
    assert encoded == (
        b"\0\3"
        b"\0\x08consumer"
        b"\0\0\0\4"
        b"\0\x05range"
        b"\0\3a-1" + (1000).to_bytes(8, "big") + b"\0\0\0\1"
        b"\0\3a-1"
        b"\xff\xff"
        b"\0\1a"
        b"\0\2/h"
        b"\0\0\0\x3c"
        b"\0\0\0\x0a"
        b"\0\0\0\1s"
        b"\0\0\0\1p"
    )


def test_tombstones_have_no_value() -> None:
    assert offset_tombstone("g", "t", 0).encoded()[1] is None
    assert group_tombstone("g").encoded()[1] is None


@pytest.mark.parametrize("record_type", [0, 1])
@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_can_be_read(record_type: int, version: int) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    stored_key = record_type.to_bytes(2, "big") + key.encode(0)
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=5)
    record = TYPES.decode(stored_key, version.to_bytes(2, "big") + value.encode(version))
    assert record is not None
    assert record.key == key
    assert record.value == value


def test_records_of_unknown_types_are_left_aside() -> None:
    assert TYPES.decode(b"\0\x63anything", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\1\0\1", None),
        (b"\0\2\0\1g", b"\0"),
        (b"\0\2\0\1g", b"\0\x09"),
    ],
)
def test_records_that_cannot_be_read_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        TYPES.decode(key, value)
