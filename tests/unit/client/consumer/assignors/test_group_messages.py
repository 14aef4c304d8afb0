"""Subscriptions, assignments and the sticky assignor's user data as bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.consumer.assignors.assignor import Assignment, Subscription
from tidelog.client.consumer.assignors.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.consumer.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
    decode_user_data,
    encode_user_data,
)
from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata
from tidelog.protocol.errors import DecodeError
from tidelog.types import TopicPartition

A0, B0, B1 = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1)
SUBSCRIPTION = Subscription(["a", "b"], b"\1\2", [A0, B0, B1], 5, None, "rack")


class TestSubscription:
    def test_bytes_are_those_of_the_java_client(self) -> None:
        encoded = encode_subscription(
            Subscription(["b", "a"], b"\1\2", [B1, A0, B0], 5, "i", "rack")
        )
        assert encoded.hex() == (
            "000300000002000161000162000000020102000000020001610000000100000000"
            "0001620000000200000000000000010000000500047261636b"
        )

    @pytest.mark.parametrize("version", range(4))
    def test_every_version_keeps_its_fields(self, version: int) -> None:
        decoded = decode_subscription(encode_subscription(SUBSCRIPTION, version), "instance")
        assert decoded == Subscription(
            SUBSCRIPTION.topics,
            SUBSCRIPTION.user_data,
            SUBSCRIPTION.owned_partitions if version >= 1 else [],
            SUBSCRIPTION.generation if version >= 2 else None,
            "instance",
            SUBSCRIPTION.rack if version >= 3 else None,
        )

    def test_a_later_version_is_read_as_the_highest_known(self) -> None:
        encoded = encode_subscription(SUBSCRIPTION)
        assert decode_subscription(b"\0\x09" + encoded[2:] + b"new fields") == SUBSCRIPTION

    @pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\3", b"\0\0\x7f\xff\xff\xff"])
    def test_other_bytes_are_refused(self, data: bytes) -> None:
        with pytest.raises(DecodeError):
            decode_subscription(data)

    @given(st.data())
    def test_damage_is_refused_or_read(self, data: st.DataObject) -> None:
        encoded = bytearray(encode_subscription(SUBSCRIPTION))
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
        del encoded[data.draw(st.integers(0, len(encoded))) :]
        with suppress(DecodeError):
            decode_subscription(bytes(encoded))


class TestAssignment:
    def test_bytes_are_those_of_the_java_client(self) -> None:
        encoded = encode_assignment(Assignment([B1, A0, B0]))
        assert encoded.hex() == (
            "0003000000020001620000000200000001000000000001610000000100000000ffffffff"
        )

    @pytest.mark.parametrize("version", range(4))
    def test_every_version_comes_back(self, version: int) -> None:
        assignment = Assignment([B1, B0, A0], b"user data")
        assert decode_assignment(encode_assignment(assignment, version)) == assignment

    @pytest.mark.parametrize("data", [b"", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1"])
    def test_other_bytes_are_refused(self, data: bytes) -> None:
        with pytest.raises(DecodeError):
            decode_assignment(data)


class TestUserData:
    def test_the_sticky_assignor_writes_what_the_java_client_writes(self) -> None:
        assignor = StickyAssignor()
        assert assignor.subscription_user_data(["a"]) is None
        assignor.on_assignment(Assignment([B1, A0, B0]), ConsumerGroupMetadata("g", 5, "m"))
        user_data = assignor.subscription_user_data(["a"])
        assert user_data is not None
        assert user_data.hex() == (
            "00000002000161000000010000000000016200000002000000010000000000000005"
        )
        assert decode_user_data(user_data) == ([A0, B1, B0], 5)

    def test_the_first_version_has_no_generation(self) -> None:
        assert decode_user_data(encode_user_data([A0], 5)[:-4]) == ([A0], None)

    @given(st.binary(max_size=40) | st.just(encode_user_data([A0, B0, B1], 5)), st.data())
    def test_other_bytes_are_an_empty_past(self, data: bytes, choice: st.DataObject) -> None:
        cut = data[: choice.draw(st.integers(0, len(data)))]
        try:
            decode_user_data(cut)
        except ValueError:
            subscription = Subscription(["a"], cut)
            (assignment,) = StickyAssignor().assign({"a": [()]}, {"m": subscription}).values()
            assert assignment.partitions == [A0]

    def test_cooperative_members_tell_their_generation(self) -> None:
        assignor = CooperativeStickyAssignor()
        assert assignor.subscription_user_data(["a"]) == b"\xff\xff\xff\xff"
        assignor.on_assignment(Assignment([A0]), ConsumerGroupMetadata("g", 7, "m"))
        assert assignor.subscription_user_data(["a"]) == b"\0\0\0\7"

    def test_a_generation_in_user_data_counts_for_old_subscriptions(self) -> None:
        subscriptions = {
            "old": Subscription(["a"], b"\0\0\0\5", [A0]),
            "new": Subscription(["a"], None, [A0], 4),
        }
        shares = CooperativeStickyAssignor().assign({"a": [()]}, subscriptions)
        assert shares["old"].partitions == [A0]
        assert shares["new"].partitions == []

    def test_user_data_too_short_for_a_generation_is_from_before_all(self) -> None:
        subscriptions = {"m": Subscription(["a"], b"\0", [A0])}
        assert CooperativeStickyAssignor().assign({"a": [()]}, subscriptions)["m"].partitions == [
            A0
        ]
