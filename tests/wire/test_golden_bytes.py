"""Encodings checked by hand against the protocol guide, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from tidelog.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.protocol.messages.control_records import EndTxnMarker
from tidelog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.types import Uuid

TOPIC_ID = Uuid(bytes(range(16)))

GOLDEN: list[tuple[Any, int, bytes]] = [
    (ApiVersionsRequest(), 0, b""),
    (
        ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.6"),
        3,
        b"\x0blibrdkafka\x042.6\x00",  # no tags
    ),
    (
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=18, max_version=4)],
            supported_features=[SupportedFeatureKey(name="f", min_version=1, max_version=2)],
        ),
        3,
        b"\x00\x00"  # error_code
        b"\x02"  # one api key
        b"\x00\x12\x00\x00\x00\x04\x00"
        b"\x00\x00\x00\x00"  # throttle_time_ms
        b"\x01"  # one tag: supported_features, 8 bytes
        b"\x00\x08"
        b"\x02\x02f\x00\x01\x00\x02\x00",
    ),
    (MetadataRequest(topics=None), 1, b"\xff\xff\xff\xff"),
    (MetadataRequest(topics=[]), 1, b"\x00\x00\x00\x00"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
        4,
        b"\x00\x00\x00\x01\x00\x01t\x00",  # allow_auto_topic_creation
    ),
    (
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)]),
        12,
        b"\x02" + TOPIC_ID + b"\x00"  # null name
        b"\x00"  # topic's tags
        b"\x01"  # allow_auto_topic_creation
        b"\x00"  # include_topic_authorized_operations
        b"\x00",
    ),
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[PartitionProduceData(index=1, records=b"batch")],
                )
            ],
        ),
        3,
        b"\xff\xff"  # transactional_id
        b"\xff\xff"  # acks
        b"\x00\x00\x05\xdc"
        b"\x00\x00\x00\x01\x00\x01t"
        b"\x00\x00\x00\x01\x00\x00\x00\x01"
        b"\x00\x00\x00\x05batch",
    ),
    (
        ProduceRequest(
            transactional_id="tx",
            acks=1,
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(records=bytes(127))]
                )
            ],
        ),
        9,
        b"\x03tx\x00\x01\x00\x00\x00\x00"
        b"\x02\x02t"
        b"\x02\x00\x00\x00\x00"
        b"\x80\x01" + bytes(127) + b"\x00\x00\x00",
    ),
    (
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="t",
                    partition_responses=[
                        PartitionProduceResponse(index=2, base_offset=7, log_start_offset=3)
                    ],
                )
            ],
        ),
        9,
        b"\x02\x02t\x02"
        b"\x00\x00\x00\x02"
        b"\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x07"
        b"\xff\xff\xff\xff\xff\xff\xff\xff"  # log_append_time_ms
        b"\x00\x00\x00\x00\x00\x00\x00\x03"
        b"\x01"  # no record errors
        b"\x00"  # no error message
        b"\x00\x00"
        b"\x00\x00\x00\x00\x00",  # throttle_time_ms, tags
    ),
    (
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1024,
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic="t",
                    partitions=[
                        FetchPartition(partition=1, fetch_offset=5, partition_max_bytes=512)
                    ],
                )
            ],
        ),
        4,
        b"\xff\xff\xff\xff"  # replica_id
        b"\x00\x00\x01\xf4\x00\x00\x00\x01\x00\x00\x04\x00"
        b"\x01"
        b"\x00\x00\x00\x01\x00\x01t"
        b"\x00\x00\x00\x01"
        b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x02\x00",
    ),
    (
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[
                        PartitionData(
                            error_code=6,
                            high_watermark=-1,
                            aborted_transactions=[AbortedTransaction(producer_id=9)],
                            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2),
                        )
                    ],
                )
            ],
        ),
        13,
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"  # throttle, error, session
        b"\x02" + TOPIC_ID + b"\x02"
        b"\x00\x00\x00\x00"
        b"\x00\x06"
        b"\xff\xff\xff\xff\xff\xff\xff\xff"  # high_watermark
        b"\xff\xff\xff\xff\xff\xff\xff\xff"  # last_stable_offset
        b"\xff\xff\xff\xff\xff\xff\xff\xff"  # log_start_offset
        b"\x02\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\xff\xff\xff\xff"  # preferred_read_replica
        b"\x00"  # null records
        b"\x01\x01\x09\x00\x00\x00\x01\x00\x00\x00\x02\x00"  # tag 1, 9 bytes: current_leader
        b"\x00\x00",
    ),
    (
        ConsumerGroupHeartbeatResponse(
            member_id="m",
            member_epoch=1,
            heartbeat_interval_ms=5000,
            assignment=Assignment(
                topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 3])]
            ),
        ),
        0,
        b"\x00\x00\x00\x00\x00\x00\x00"
        b"\x02m\x00\x00\x00\x01\x00\x00\x13\x88"
        b"\x01"  # assignment is there
        b"\x02" + TOPIC_ID + b"\x03\x00\x00\x00\x00\x00\x00\x00\x03\x00"
        b"\x00\x00",
    ),
    (
        ConsumerGroupHeartbeatResponse(),
        0,
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\x00",
    ),
    (
        ConsumerProtocolSubscription(topics=["a", "b"], user_data=None),
        0,
        b"\x00\x00\x00\x02\x00\x01a\x00\x01b\xff\xff\xff\xff",
    ),
    (
        OffsetCommitKey(group="g", topic="t", partition=3),
        0,
        b"\x00\x01g\x00\x01t\x00\x00\x00\x03",
    ),
    (
        OffsetCommitValue(offset=42, leader_epoch=-1, metadata="m", commit_timestamp=1),
        3,
        b"\x00\x00\x00\x00\x00\x00\x00\x2a\xff\xff\xff\xff\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x01",
    ),
    (EndTxnMarker(coordinator_epoch=5), 0, b"\x00\x00\x00\x05"),
]


@pytest.mark.parametrize(
    ("message", "version", "encoded"),
    GOLDEN,
    ids=[
        f"{type(message).__name__}-v{version}-{i}" for i, (message, version, _) in enumerate(GOLDEN)
    ],
)
def test_golden_bytes(message: Any, version: int, encoded: bytes) -> None:
    assert bytes(message.encode(version)) == encoded
    assert type(message).decode(memoryview(encoded), 0, version) == message
