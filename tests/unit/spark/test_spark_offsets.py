from __future__ import annotations

import json

import pytest

from tidelog.spark.offsets import (
    MalformedOffsets,
    StreamOffset,
    offsets_from_text,
    partitions_from_text,
    partitions_text,
)
from tidelog.types import TopicPartition, Uuid

A0, A2, A10, B0 = (TopicPartition(*row) for row in (("a", 0), ("a", 2), ("a", 10), ("b", 0)))


A_ID = Uuid(bytes(range(16)))


def test_an_offset_comes_back_from_its_own_text() -> None:
    offset = StreamOffset({A0: 5, B0: -2, A10: 1 << 40}, {"a": A_ID})
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_text_of_equal_offsets_is_equal_whatever_their_order() -> None:
    one = StreamOffset({A10: 1, B0: 2, A2: 3}, {"a": A_ID}).to_json()
    other = StreamOffset({B0: 2, A2: 3, A10: 1}, {"a": A_ID}).to_json()
    text = '{"a": {"2": 3, "10": 1, "id": "AAECAwQFBgcICQoLDA0ODw"}, "b": {"0": 2}}'
    assert json.dumps(one) == json.dumps(other) == text


def test_checkpoints_without_topic_ids_are_read() -> None:
    assert StreamOffset.from_json({"a": {"0": 5}}) == StreamOffset({A0: 5}, {})


@pytest.mark.parametrize(
    "value", [5, {"a": 5}, {"a": {"0": 1, "id": "short"}}, {"a": {"ident": 1}}]
)
def test_what_is_no_offset_of_a_stream_is_refused(value: object) -> None:
    with pytest.raises(MalformedOffsets):
        StreamOffset.from_json(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[]",
        '{"a": 5}',
        '{"a": {"x": 5}}',
        '{"a": {"id": "x"}}',
        '{"a": {"0": "5"}}',
        '{"a": {"0": 1.5}}',
    ],
)
def test_what_is_no_mapping_of_offsets_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(MalformedOffsets, match=r"expected e\.g\. .*topicA"):
        offsets_from_text(text)


def test_partitions_are_lists_by_topic() -> None:
    assert partitions_from_text('{"a": [0, 2], "b": [0]}') == {A0, A2, B0}


@pytest.mark.parametrize("text", ["orders", '{"a": 0}', '{"a": ["0"]}', '{"a": [-1]}'])
def test_what_is_no_mapping_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(MalformedOffsets):
        partitions_from_text(text)


def test_long_lists_of_partitions_are_cut_in_messages() -> None:
    named = partitions_text(TopicPartition("a", number) for number in range(12))
    assert named.startswith("a-0, a-1, a-2")
    assert named.endswith("a-9 and 2 more")
