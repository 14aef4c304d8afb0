"""The bytes are those that Kafka 3.9 writes and reads."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tidelog.coordinator.group.classic.classic_group import group_metadata, group_tombstone
from tidelog.coordinator.group.offsets import (
    CommittedOffset,
    OffsetRecords,
    offset_commit,
    offset_tombstone,
)
from tidelog.coordinator.group.shard import GROUP_RECORD_TYPES, GroupShard
from tidelog.protocol.errors import DecodeError, EncodeError
from tidelog.protocol.messages.classic_group_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.types import NO_PRODUCER_ID

TYPES = GROUP_RECORD_TYPES


def test_offset_commit_is_a_record_of_type_1_with_a_value_of_version_3() -> None:
    record = offset_commit("g", "t", 7, CommittedOffset(258, 5, "m", 1000))
    assert record.encoded() == (
        bytes.fromhex("000100016700017400000007"),
        bytes.fromhex("000300000000000001020000000500016d00000000000003e8"),
    )


def test_offset_with_an_expiry_of_its_own_has_version_1_and_no_leader_epoch() -> None:
    record = offset_commit("g", "t", 7, CommittedOffset(258, 5, "m", 1000, 2000))
    assert record.encoded()[1] == bytes.fromhex(
        "0001000000000000010200016d00000000000003e800000000000007d0"
    )


COMMIT = [
    ("t", 7, CommittedOffset(258, 5, "m", 1000)),
    ("t", 2**31 - 1, CommittedOffset(2**63 - 1, 2**31 - 1, "", 2**63 - 1)),
    ("u", 0, CommittedOffset(-1, -1, "mé☃", 0)),
    ("t", 8, CommittedOffset(0, 9, "m", 1000, 2000)),
    ("t", 7, CommittedOffset(0, -1, "x" * 32_767, 1)),
    ("", 0, CommittedOffset(0, -1, "", 1)),
]


def test_records_of_a_commit_are_those_of_its_offsets_one_by_one() -> None:
    records = OffsetRecords("gö")
    for each in COMMIT:
        records.add(*each)
    assert records.encoded() == [offset_commit("gö", *each).encoded() for each in COMMIT]


@pytest.mark.parametrize(
    ("group", "topic", "metadata"),
    [
        ("g" * 32_768, "t", ""),
        ("g", "t" * 32_768, ""),
        ("g", "t", "x" * 32_768),
        ("g", "t", "\ud800"),
    ],
)
def test_a_commit_that_cannot_be_encoded_says_so_when_asked_for_its_bytes(
    group: str, topic: str, metadata: str
) -> None:
    records = OffsetRecords(group)
    records.add(topic, 0, CommittedOffset(1, 1, metadata, 1))
    records.add("fine", 0, CommittedOffset(1, 1, "", 1))
    with pytest.raises(EncodeError):
        records.encoded()


@pytest.mark.parametrize("producer_id", [NO_PRODUCER_ID, 1000])
def test_replaying_a_commit_is_replaying_its_records(producer_id: int) -> None:
    live, loaded = (GroupShard(0, FakeClock()) for _ in range(2))
    live.replay_commit("g", COMMIT, 70, producer_id)
    for log_offset, each in enumerate(COMMIT, 70):
        record = TYPES.decode(*offset_commit("g", *each).encoded())
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
