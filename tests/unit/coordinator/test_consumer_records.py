"""The bytes are those that Kafka writes and reads for consumer groups."""

from __future__ import annotations

import pytest

from tidelog.coordinator.group.consumer import records
from tidelog.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    ResolvedPattern,
    SubscribedTopic,
)
from tidelog.coordinator.group.consumer.consumer_group_member import (
    ClassicSide,
    ConsumerGroupMember,
    MemberState,
)
from tidelog.coordinator.group.shard import GROUP_RECORD_TYPES
from tidelog.coordinator.stored_record import CoordinatorRecord
from tidelog.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from tidelog.types import Uuid

TOPIC = Uuid(bytes(range(16)))
TOPIC_HEX = bytes(range(16)).hex()
MEMBER = ConsumerGroupMember(
    "m",
    member_epoch=5,
    previous_member_epoch=4,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={TOPIC: {0: 5, 2: 5}},
    revoking={TOPIC: {1: 5}},
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=1000,
    subscribed_topic_names=frozenset({"u", "t"}),
)

GOLDEN = [
    (records.group_epoch("g", 5), "0003000167", "00000000000500"),
    (
        records.subscription_metadata("g", {"t": SubscribedTopic(TOPIC, 3)}),
        "0004000167",
        f"0000 02 {TOPIC_HEX} 0274 00000003 01 00 00",
    ),
    (
        records.member_metadata("g", MEMBER),
        "0005 000167 00016d",
        "0000 00 00 0263 032f68 03 0274 0275 01 000003e8 00 00",
    ),
    (records.target_epoch("g", 5), "0006000167", "00000000000500"),
    (
        records.target_assignment("g", "m", {TOPIC: frozenset({0, 2})}),
        "0007 000167 00016d",
        f"0000 02 {TOPIC_HEX} 03 00000000 00000002 00 00",
    ),
    (
        records.current_assignment("g", MEMBER),
        "0008 000167 00016d",
        f"0000 00000005 00000004 01 02 {TOPIC_HEX} 03 00000000 00000002 00"
        f"02 {TOPIC_HEX} 02 00000001 00 00",
    ),
    (
        records.resolved_pattern("g", "t.*", ResolvedPattern(frozenset({"t1"}), 7, 9)),
        "0010 000167 0003742e2a",
        "0000 02 037431 0000000000000007 0000000000000009 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN, ids=lambda p: type(p).__name__)
def test_a_record_has_kafkas_bytes(record: CoordinatorRecord, key: str, value: str) -> None:
    key_bytes, value_bytes = record.encoded()
    assert key_bytes == bytes.fromhex(key)
    assert value_bytes == bytes.fromhex(value)
    assert GROUP_RECORD_TYPES.decode(key_bytes, value_bytes) == record


def replayed(*made: CoordinatorRecord) -> ConsumerGroup:
    """A group of records that were written and read again."""
    group = ConsumerGroup("g", 0)
    for record in made:
        read = GROUP_RECORD_TYPES.decode(*record.encoded())
        assert read is not None
        group.replay(read)
    return group


@pytest.mark.parametrize(
    "member",
    [
        MEMBER,
        MEMBER._replace(instance_id="i", rack_id="r", server_assignor="range"),
        MEMBER._replace(subscribed_topic_regex="t.*", member_epoch=-2),
        MEMBER._replace(assigned={TOPIC: {0: 2, 2: 5}}, revoking={TOPIC: {1: 3}}),
        MEMBER._replace(classic=ClassicSide(6000, (("range", b"xy"), ("sticky", b"z")))),
    ],
)
def test_a_member_comes_back_as_it_was(member: ConsumerGroupMember) -> None:
    group = replayed(records.member_metadata("g", member), records.current_assignment("g", member))
    assert group.members == {"m": member}


def test_epochs_of_partitions_are_written_only_where_they_differ() -> None:
    """A tagged field, so that Kafkas before 4.3 read over it."""
    older = MEMBER._replace(assigned={TOPIC: {0: 2, 2: 5}})
    plain = records.current_assignment("g", MEMBER).encoded()[1]
    tagged = records.current_assignment("g", older).encoded()[1]
    assert plain is not None
    assert tagged is not None
    assert len(tagged) - len(plain) == 2 + 1 + 2 * 4  # tag, size, count, two epochs


def test_partitions_without_epochs_have_the_members() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7, assigned_partitions=[TopicPartitions(topic_id=TOPIC, partitions=[3])]
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    group = replayed(CoordinatorRecord(key, value))
    assert group.members["m"].assigned == {TOPIC: {3: 7}}


def test_a_cleaned_log_may_show_a_partition_at_its_new_owner_first() -> None:
    holder = MEMBER._replace(assigned={TOPIC: {0: 5}}, revoking={})
    heir = holder._replace(member_id="n")
    freed = holder._replace(assigned={}, revoking={})
    group = replayed(
        *(records.member_metadata("g", member) for member in (holder, heir)),
        records.current_assignment("g", holder),
        records.current_assignment("g", heir),
        records.current_assignment("g", freed),
    )
    assert group.is_held(TOPIC, 0)


def test_tombstones_of_a_group_end_everything_it_has() -> None:
    resolved = ResolvedPattern(frozenset({"t"}), 1, 1)
    group = replayed(
        records.member_metadata("g", MEMBER),
        records.current_assignment("g", MEMBER),
        records.target_assignment("g", "m", {TOPIC: frozenset({0})}),
        records.resolved_pattern("g", "t.*", resolved),
        records.group_epoch("g", 3),
    )
    tombstones = records.group_tombstones(group)
    assert [record.key.RECORD_TYPE for record in tombstones] == [8, 7, 5, 6, 16, 4, 3]
    assert all(record.value is None for record in tombstones)
    for record in tombstones[:-1]:
        group.replay(record)
    assert (group.members, group.target, group.patterns) == ({}, {}, {})
