"""One harmless, well-formed request for each API a broker of this release serves, in every version.

Each sample is a kafka-python message class and a function from version to fields, so that the same
samples feed the sweep over advertised versions and the frame mutator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.support.group_samples import group_samples
from tests.support.raw_batch import batch, message
from tests.support.txn_samples import txn_samples

Fields = Callable[[int], dict[str, Any]]
Sample = tuple[Any, Fields]

MISSING_TOPIC = "no-such-topic"
TOPIC_RESOURCE = 2
LITERAL, READ, ALLOW = 3, 3, 3  # pattern type, operation and permission of an ACL


def always(**fields: Any) -> Fields:
    return lambda version: fields


def sample_requests(topic: str) -> Iterator[Sample]:
    yield ApiVersionsRequest, always(client_software_name="s", client_software_version="1")
    yield from _data_samples(topic)
    yield from _topic_samples(topic)
    yield from _config_samples(topic)
    yield from _controller_samples(topic)
    yield from group_samples(topic)
    yield from txn_samples(topic)
    yield from _security_samples(topic)
    yield DescribeClusterRequest, always()
    yield ListConfigResourcesRequest, always()
    yield DescribeLogDirsRequest, always(topics=None)
    moved = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    to_move = moved.AlterReplicaLogDirTopic(name=topic, partitions=[0])
    yield AlterReplicaLogDirsRequest, always(dirs=[moved(path="/nowhere", topics=[to_move])])
    yield InitProducerIdRequest, always(transactional_id=None, transaction_timeout_ms=60_000)


def _data_samples(topic: str) -> Iterator[Sample]:
    produced = ProduceRequest.TopicProduceData
    yield (
        ProduceRequest,
        lambda version: {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [
                produced(
                    name=topic,
                    partition_data=[
                        produced.PartitionProduceData(index=0, records=records_of(version))
                    ],
                )
            ],
        },
    )
    fetched = FetchRequest.FetchTopic
    row = fetched.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
    yield (
        FetchRequest,
        always(replica_id=-1, max_wait_ms=0, topics=[fetched(topic=topic, partitions=[row])]),
    )
    listed = ListOffsetsRequest.ListOffsetsTopic
    yield (
        ListOffsetsRequest,
        always(
            replica_id=-1,
            topics=[
                listed(
                    name=topic,
                    partitions=[listed.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                )
            ],
        ),
    )
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    yield (
        OffsetForLeaderEpochRequest,
        always(
            replica_id=-2,
            topics=[
                epochs(
                    topic=topic,
                    partitions=[
                        epochs.OffsetForLeaderPartition(
                            partition=0, current_leader_epoch=-1, leader_epoch=0
                        )
                    ],
                )
            ],
        ),
    )


def records_of(produce_version: int) -> bytes:
    if produce_version < 2:
        return message(b"value", b"key", magic=0)
    if produce_version < 3:
        return message(b"value", b"key", magic=1)
    return batch(b"value", key=b"key")


def _topic_samples(topic: str) -> Iterator[Sample]:
    yield (
        MetadataRequest,
        always(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
        ),
    )
    yield (
        DescribeTopicPartitionsRequest,
        always(topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)]),
    )
    created = CreateTopicsRequest.CreatableTopic
    yield (
        CreateTopicsRequest,
        lambda version: {
            "topics": [
                created(
                    name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
            ],
            "timeout_ms": 1000,
            "validate_only": version > 0,
        },
    )
    yield (
        DeleteTopicsRequest,
        lambda version: {
            "topics": [DeleteTopicsRequest.DeleteTopicState(name=MISSING_TOPIC)],
            "topic_names": [MISSING_TOPIC],
            "timeout_ms": 1000,
        },
    )
    yield (
        CreatePartitionsRequest,
        always(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=1)],
            timeout_ms=1000,
            validate_only=True,
        ),
    )
    deleted = DeleteRecordsRequest.DeleteRecordsTopic
    yield (
        DeleteRecordsRequest,
        always(
            topics=[
                deleted(
                    name=topic,
                    partitions=[deleted.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=1000,
        ),
    )


def _config_samples(topic: str) -> Iterator[Sample]:
    yield (
        DescribeConfigsRequest,
        always(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
                )
            ]
        ),
    )
    altered = AlterConfigsRequest.AlterConfigsResource
    yield (
        AlterConfigsRequest,
        always(
            resources=[
                altered(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=topic,
                    configs=[altered.AlterableConfig(name="retention.ms", value="1000")],
                )
            ],
            validate_only=True,
        ),
    )
    changed = IncrementalAlterConfigsRequest.AlterConfigsResource
    yield (
        IncrementalAlterConfigsRequest,
        always(
            resources=[
                changed(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=topic,
                    configs=[
                        changed.AlterableConfig(
                            name="retention.ms", config_operation=0, value="1000"
                        )
                    ],
                )
            ],
            validate_only=True,
        ),
    )


def _controller_samples(topic: str) -> Iterator[Sample]:
    yield (
        ElectLeadersRequest,
        always(
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0, 99])],
            timeout_ms=1000,
        ),
    )
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic
    cancelled = moved.ReassignablePartition(partition_index=0, replicas=None)
    yield (
        AlterPartitionReassignmentsRequest,
        always(topics=[moved(name=topic, partitions=[cancelled])], timeout_ms=1000),
    )
    yield ListPartitionReassignmentsRequest, always(topics=None, timeout_ms=1000)


def _security_samples(topic: str) -> Iterator[Sample]:
    yield SaslHandshakeRequest, always(mechanism="PLAIN")
    yield SaslAuthenticateRequest, always(auth_bytes=b"nobody")
    resource = {"pattern_type_filter": LITERAL, "resource_type_filter": TOPIC_RESOURCE}
    rule = {"operation": READ, "permission_type": ALLOW}
    wanted = {"resource_name_filter": topic, "principal_filter": None, "host_filter": None}
    yield DescribeAclsRequest, always(**resource, **rule, **wanted)
    filters = [DeleteAclsRequest.DeleteAclsFilter(**resource, **rule, **wanted)]
    yield DeleteAclsRequest, always(filters=filters)
    creation = CreateAclsRequest.AclCreation(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        resource_pattern_type=LITERAL,
        principal="User:nobody",
        host="*",
        **rule,
    )
    yield CreateAclsRequest, always(creations=[creation])
    yield DescribeClientQuotasRequest, always(components=[], strict=False)
    yield AlterClientQuotasRequest, always(entries=[], validate_only=True)
    yield DescribeUserScramCredentialsRequest, always(users=None)
    yield AlterUserScramCredentialsRequest, always(deletions=[], upsertions=[])
