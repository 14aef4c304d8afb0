"""What all messages have in common."""

from __future__ import annotations

import pytest

from tests.support.messages import codec
from tidelog.protocol import EncodeError
from tidelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


class FileSlice:
    """Like a slice of a segment file: has a length and no bytes."""

    def __len__(self) -> int:
        return 300


def fetch_response(*records: object) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=each) for i, each in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_every_message_starts_with_lists_of_its_own() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchTopic())
    assert second.topics == []


def test_messages_are_equal_by_their_fields() -> None:
    assert MetadataRequest(topics=None) == MetadataRequest(topics=None)
    assert MetadataRequest(topics=None) != MetadataRequest(topics=[])
    assert MetadataRequest() != FetchRequest()


def test_no_field_of_a_message_that_may_be_compiled_is_overlooked() -> None:
    for field in ("transactional_id", "acks", "timeout_ms", "topic_data"):
        other = ProduceRequest()
        setattr(other, field, {"transactional_id": "t", "topic_data": [None]}.get(field, 7))
        assert other != ProduceRequest(), field
        assert f"{field}=" in repr(other)


def test_repr_shows_the_fields() -> None:
    assert repr(MetadataRequestTopic(name="t")).startswith("MetadataRequestTopic(topic_id=")


def test_class_attributes_tell_key_and_versions() -> None:
    assert (FetchRequest.API_KEY, FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION) == (1, 0, 18)


def test_a_missing_ignorable_field_is_dropped() -> None:
    assert FetchRequest(max_bytes=5).encode(0) == FetchRequest().encode(0)


def test_a_missing_field_with_a_value_is_refused() -> None:
    with pytest.raises(EncodeError, match="states_filter"):
        ListGroupsRequest(states_filter=["Stable"]).encode(3)


def test_null_where_the_version_allows_none_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"MetadataRequest v0.*topics"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(EncodeError):
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]).encode(9)


@pytest.mark.parametrize(
    "request_",
    [FetchRequest(max_wait_ms=1 << 31), FetchRequest(topics=[FetchTopic(topic="t" * 32768)])],
)
@pytest.mark.parametrize("version", [4, 12])
def test_values_out_of_range_are_refused(request_: FetchRequest, version: int) -> None:
    with pytest.raises(EncodeError):
        request_.encode(version)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(EncodeError, match="no version 19"):
        FetchRequest().encode(19)
    with pytest.raises(EncodeError, match="no version 19"):
        FetchResponse().encode_parts(19)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_parts_are_the_encoding_cut_at_the_records(version: int) -> None:
    batches = [bytes([65 + i]) * 200 for i in range(3)]
    response = fetch_response(batches[0], None, memoryview(batches[1]), b"", batches[2])
    parts = response.encode_parts(version)
    assert [part for part in parts if bytes(part) in batches] == batches
    assert b"".join(parts) == response.encode(version)


@pytest.mark.parametrize("version", [4, 12])
def test_records_of_a_file_are_a_part_unread(version: int) -> None:
    records = FileSlice()
    parts = fetch_response(records).encode_parts(version)
    assert parts[1] is records
    whole = fetch_response(bytes(300)).encode_parts(version)
    assert (parts[0], parts[2:]) == (whole[0], whole[2:])


def test_records_of_a_file_cannot_be_encoded_in_one() -> None:
    with pytest.raises(EncodeError):
        fetch_response(FileSlice()).encode(12)


def test_parts_work_for_requests_and_snapshots_too() -> None:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=FileSlice())])]
    assert [len(part) for part in ProduceRequest(topic_data=data).encode_parts(9)] == [17, 300, 3]
    snapshots = codec("fetch_snapshot")
    partition = snapshots.FetchSnapshotResponsePartitionSnapshot(unaligned_records=FileSlice())
    topics = [snapshots.FetchSnapshotResponseTopicSnapshot(partitions=[partition])]
    assert len(snapshots.FetchSnapshotResponse(topics=topics).encode_parts(0)[1]) == 300


def test_a_tagged_struct_is_none_when_absent_and_sent_when_it_says_something() -> None:
    response = fetch_response(None)
    plain = response.encode(12)
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset()
    assert response.encode(12) == plain
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=3)
    decoded = FetchResponse.decode(memoryview(response.encode(12)), 0, 12)
    partition = decoded.responses[0].partitions[0]
    assert partition.diverging_epoch == EpochEndOffset(epoch=3)
    assert partition.current_leader is None
